import { sum, type Row } from "@/lib/sum";

const rows: Row[] = [{ 地区: "北京", 金额: 1200 }, { 地区: "上海", 金额: 34 }];
const p = document.createElement("p");
p.textContent = `合计：${sum(rows)}`;
document.getElementById("root")?.append(p);
