export interface Row { 地区: string; 金额: number }
export const sum = (rows: Row[]): number => rows.reduce((all, row) => all + row.金额, 0);
