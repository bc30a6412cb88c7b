// Bookkeeping that somebody wrote for any host of components: it knows nothing of Toolhold.

export const version = () => "0.3.0";

export const books = {
  balance(lines, checks) {
    let total = null;
    lines.forEach(({ tag, val }, at) => {
      if (tag === "note") return;
      const money = tag === "income" ? val : val[0];
      if (checks.positive && money.minor < 0) throw { at, reason: "negative amount" };
      total ??= { minor: 0, currency: money.currency };
      if (checks.sameCurrency && money.currency !== total.currency) throw { at, reason: "another currency" };
      total.minor += tag === "income" ? money.minor : -money.minor;
    });
    return total;
  },

  convert(amount, to, rate) {
    return { minor: Math.round(amount.minor * rate), currency: to };
  },

  checksum(data) {
    let a = 1, b = 0;
    for (const byte of data) {
      a = (a + byte) % 65521;
      b = (b + a) % 65521;
    }
    // 32 bits do not fit JavaScript's bitwise operators.
    return b * 65536 + a;
  },
};
