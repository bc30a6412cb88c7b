// Types that another file imports.
import { array, integer, nullable, object, oneOf, optional, record, string, union, type Infer } from "./toolhold/tools.js";

export const money = object({ amount: integer("In cents."), currency: oneOf(["EUR", "USD"]) });

export const row = object({
  id: union(string(), integer()),
  price: nullable(money),
  tags: optional(array(oneOf(["a", "b"]))),
  scores: optional(record(array(integer()))),
});

export type Row = Infer<typeof row>;
