// Types that an author would write, beyond the template's.
import { array, boolean, object, offer, optional, tool, union } from "./toolhold/tools.js";
import { money, row, type Row } from "./rows.ts";

type Sum = { total: number; first?: Row | boolean };

function add(rows: readonly Row[]): Sum {
  const total = rows.reduce((sum, { price }) => sum + (price?.amount ?? 0), 0);
  const first = rows[0];
  const id: string | number | undefined = first?.id;
  return first && id !== undefined ? { total, first } : { total };
}

export const tools = offer(
  tool({
    name: "add",
    description: "Adds rows up.",
    input: { rows: array(row, "What is added.", { maxItems: 3 }), limit: optional(money) },
    output: object({ total: money, first: optional(union(row, boolean())) }),
    run: ({ rows, limit }) => {
      const { total, ...rest } = add(rows);
      return { ...rest, total: { amount: Math.min(total, limit?.amount ?? total), currency: "EUR" } };
    },
  }),
);
