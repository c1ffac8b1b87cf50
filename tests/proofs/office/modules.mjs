// Word and PowerPoint files by Node, with `import` from a directory that has no node_modules; and `require`.
import { writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { Document, Packer, Paragraph, HeadingLevel } from "docx";
import pptxgen from "pptxgenjs";

const [title, text] = process.argv.slice(2);
const document = new Document({
  sections: [{ children: [new Paragraph({ text: title, heading: HeadingLevel.HEADING_1 }), new Paragraph(text)] }],
});
writeFileSync("/outputs/节点.docx", await Packer.toBuffer(document));

const deck = new pptxgen();
const slide = deck.addSlide();
slide.addText(title, { x: 1, y: 1, w: 8, h: 1, fontFace: "微软雅黑", fontSize: 32 });
slide.addText(text, { x: 1, y: 2.5, w: 8, h: 1 });
slide.addChart(deck.ChartType.bar, [{ name: "数量", labels: ["北京", "上海"], values: [3, 5] }], { x: 1, y: 3.5, w: 5, h: 2 });
await deck.writeFile({ fileName: "/outputs/节点.pptx" });

const require = createRequire("/work/anything.js");
console.log(JSON.stringify({
  node: process.versions.node,
  required: [typeof require("docx").Document, typeof require("pptxgenjs"), typeof require("@parcel/core").default],
}));
