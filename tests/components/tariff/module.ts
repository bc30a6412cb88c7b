// Prices that somebody computes for any host of components: it knows nothing of Toolhold.

interface Parcel {
  grams: number;
  insured?: number;
}

type Service = { tag: "letter" } | { tag: "express"; val: number };
type Part = [string, number];

interface Quote {
  cents: number;
  parts: Part[];
}

export const quotes = {
  price(parcel: Parcel, by: Service): Quote {
    if (parcel.grams > 31_500) throw "a parcel weighs at most 31500 grams";
    const parts: Part[] = [["weight", 95 + Math.ceil(parcel.grams / 100) * 12]];
    if (by.tag === "express") {
      if (by.val === 0) throw "nothing arrives in no days";
      parts.push(["express", Math.round(4_000 / by.val)]);
    }
    if (parcel.insured != null) parts.push(["insurance", Math.ceil(parcel.insured / 200)]);
    return { cents: parts.reduce((sum, [, cents]) => sum + cents, 0), parts };
  },
};
