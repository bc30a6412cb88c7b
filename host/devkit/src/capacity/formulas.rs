//! The seed formulas. All times are in seconds, all money in units of one currency.
//!
//! They hold for a system in balance, not for bursts: a first estimate to size a load test, not a substitute
//! for one. [`EXPLANATION`] is their description for people.

/// The formulas, and where each is from.
pub const EXPLANATION: &str = "\
Latency of a request    L = TTFT + (C - 1) x ITL
  TTFT: sending to the first token; ITL: mean time between two tokens; C: completion tokens.
  The first token is not waited for twice, so C tokens have C - 1 spaces. This is ITL's own definition,
  ITL = (L - TTFT) / (C - 1), solved for L (NVIDIA NIM, \"LLM Inference Benchmarking: Metrics\").
Latency of a run        R = S x (L + M + O) + T + N_tools x T_marshal
  S: requests of a run, one after the other; T: time in tools between them; M: the host's own time for a
  request, to compose it and to check the reply; O: other overhead of a request that TTFT does not have, such as
  a gateway's queue; N_tools: calls of tools in a run; T_marshal: the host's own time for one of them, to pass
  arguments and results to a module and back.
The same by speeds      R = S x (L_in / P + L_out / (D / B) + O) + N_tools x (T_tool + T_marshal)
  L_in: prompt tokens that come from no cache; P: prompt tokens/s that a replica reads (prefill), L_in / TTFT;
  L_out: completion tokens, C; D: tokens/s that a replica writes, all requests together (decoding), B / ITL;
  B: the batch, N; T_tool: mean time of a call, T / N_tools; O: with M. It has C spaces, so it is S x ITL more
  than R above. --prefill-rate and --decode-rate give P and D, and TTFT and ITL follow; else P and D follow.
Requests/s of a replica q = N / L
  N: requests that it works on at the same time. Little's law, N = q x L (J. D. C. Little, \"A Proof for
  the Queuing Formula: L = lambda W\", Operations Research 9(3), 1961). It is about means: read rates,
  replicas and costs in the mean column. L is to be measured at that N.
Runs/s of a replica     r = q / S
  A run in its tools holds no place at the endpoint, and neither does one in M or O.
Tokens/s of a replica   t = q x C; t x 3600 an hour
  Completion tokens of a busy replica.
Replicas                ceil(Q / (r x U))
  Q: runs/s that are wanted; U: utilisation that is planned for. Waiting grows as 1 / (1 - U) (M/M/1;
  L. Kleinrock, \"Queueing Systems\" I, 1975): at 0.7 threefold, at 0.9 tenfold.
Cost of a run           by GPU:   K = G x g x S x L / (3600 x N x U)
                        by token: K = S x ((I - H) x p_prompt + H x p_cached + C x p_completion) / 10^6
  G: price of a GPU-hour; g: GPUs of a replica; I: prompt tokens; H: those of them from the cache. By GPU
  it is the replica's price of a second by its runs in a second, r x U; idle time is paid for.
Cost of 10^6 tokens     K x 10^6 / (S x (I + C))
  Prompt and completion together.
Cost of 10^6 generated  by GPU:   G x g x 10^6 / (t x 3600)
                        by token: K x 10^6 / (S x C)
  By GPU it is a busy replica's: 364 tokens/s at 2.50 an hour are 1.91. Divided by U it is what is paid.
The p95 column takes every input at its p95 at once: worse than the p95 of the result, whose inputs are not
at their worst together.
";

/// What the formulas take.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Quantities<T> {
    /// From sending to the first token.
    pub first_token: T,
    /// Mean, of the others.
    pub between_tokens: T,
    /// Of one request.
    pub prompt_tokens: T,
    /// Of those, from the endpoint's cache.
    pub cached_tokens: T,
    /// Of one reply, at least 1.
    pub completion_tokens: T,
    /// Of one run.
    pub requests: T,
    /// In one run.
    pub in_tools: T,
    /// Calls of tools in one run.
    pub tool_calls: T,
    /// The host's own time for one of these calls.
    pub call_marshalling: T,
    /// The host's own, for one request.
    pub marshalling: T,
    /// Of one request, beside the endpoint's and the host's.
    pub overhead: T,
    /// That a replica works on at the same time.
    pub in_flight: T,
    /// Of a replica's capacity, above 0 and up to 1.
    pub utilisation: T,
}

/// One set of inputs.
pub type OperatingPoint = Quantities<f64>;

impl<T> Quantities<T> {
    /// The same quantities of each.
    pub fn map<U>(&self, of: impl Fn(&T) -> U) -> Quantities<U> {
        Quantities {
            first_token: of(&self.first_token),
            between_tokens: of(&self.between_tokens),
            prompt_tokens: of(&self.prompt_tokens),
            cached_tokens: of(&self.cached_tokens),
            completion_tokens: of(&self.completion_tokens),
            requests: of(&self.requests),
            in_tools: of(&self.in_tools),
            tool_calls: of(&self.tool_calls),
            call_marshalling: of(&self.call_marshalling),
            marshalling: of(&self.marshalling),
            overhead: of(&self.overhead),
            in_flight: of(&self.in_flight),
            utilisation: of(&self.utilisation),
        }
    }
}

/// What is paid.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rate {
    /// For a million tokens.
    Tokens {
        prompt: f64,
        cached: f64,
        completion: f64,
    },
    /// For an hour of each GPU of a replica.
    Gpus { hour: f64, gpus: f64 },
}

/// The results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    pub request_latency: f64,
    pub run_latency: f64,
    /// Runs per second of one fully used replica.
    pub requests_rate: f64,
    pub runs_rate: f64,
    /// Per second, of one fully used replica.
    pub completion_tokens_rate: f64,
    pub completion_tokens_an_hour: f64,
    /// For the wanted runs per second.
    pub replicas: Option<f64>,
    pub run_cost: Option<f64>,
    /// Prompt and reply together.
    pub million_tokens_cost: Option<f64>,
    /// Of a million completion tokens; where GPUs are paid for, of a fully used replica.
    pub million_generated_cost: Option<f64>,
}

impl Plan {
    /// `runs_wanted` per second.
    pub fn of(point: &OperatingPoint, rate: Option<Rate>, runs_wanted: Option<f64>) -> Self {
        let request_latency =
            point.first_token + (point.completion_tokens - 1.0).max(0.0) * point.between_tokens;
        let requests_rate = point.in_flight / request_latency;
        let runs_rate = requests_rate / point.requests;
        let run_cost = rate.map(|rate| match rate {
            Rate::Tokens {
                prompt,
                cached,
                completion,
            } => {
                let from_cache = point.cached_tokens.min(point.prompt_tokens);
                let request = (point.prompt_tokens - from_cache) * prompt
                    + from_cache * cached
                    + point.completion_tokens * completion;
                point.requests * request / 1e6
            }
            Rate::Gpus { hour, gpus } => hour * gpus / 3_600.0 / (runs_rate * point.utilisation),
        });
        let completion_tokens_rate = requests_rate * point.completion_tokens;
        let completion_tokens_an_hour = completion_tokens_rate * 3_600.0;
        let million_generated_cost = match rate {
            Some(Rate::Gpus { hour, gpus }) => Some(hour * gpus * 1e6 / completion_tokens_an_hour),
            Some(Rate::Tokens { .. }) | None => {
                run_cost.map(|cost| cost * 1e6 / (point.requests * point.completion_tokens))
            }
        };
        let run_tokens = point.requests * (point.prompt_tokens + point.completion_tokens);
        Self {
            request_latency,
            run_latency: point.requests * (request_latency + point.marshalling + point.overhead)
                + point.in_tools
                + point.tool_calls * point.call_marshalling,
            requests_rate,
            runs_rate,
            completion_tokens_rate,
            completion_tokens_an_hour,
            // A hair above a whole number is the arithmetic's, and no reason for another machine.
            replicas: runs_wanted.map(|wanted| {
                (wanted / (runs_rate * point.utilisation) - 1e-9)
                    .ceil()
                    .max(1.0)
            }),
            run_cost,
            million_tokens_cost: run_cost.map(|cost| cost * 1e6 / run_tokens),
            million_generated_cost,
        }
    }
}

/// The terms of R = S x (`L_in` / P + `L_out` / (D / B) + O) + `N_tools` x (`T_tool` + `T_marshal`), in seconds of a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LatencyTerms {
    /// P: prompt tokens per second that a replica reads; absent if all of them come from the cache.
    pub prefill_rate: Option<f64>,
    /// D: tokens per second that a replica writes; absent if they take no time.
    pub decode_rate: Option<f64>,
    /// S x `L_in` / P.
    pub prefill: f64,
    /// S x `L_out` / (D / B).
    pub decode: f64,
    /// `N_tools` x (`T_tool` + `T_marshal`).
    pub tools: f64,
    /// S x O, in which the host's own time for a request is.
    pub overhead: f64,
}

impl LatencyTerms {
    pub fn of(point: &OperatingPoint) -> Self {
        let read = (point.prompt_tokens - point.cached_tokens).max(0.0);
        let rate =
            |tokens: f64, seconds: f64| (tokens > 0.0 && seconds > 0.0).then_some(tokens / seconds);
        Self {
            prefill_rate: rate(read, point.first_token),
            decode_rate: rate(point.in_flight, point.between_tokens),
            prefill: point.requests * point.first_token,
            decode: point.requests * point.completion_tokens * point.between_tokens,
            tools: point.in_tools + point.tool_calls * point.call_marshalling,
            overhead: point.requests * (point.marshalling + point.overhead),
        }
    }

    pub fn sum(&self) -> f64 {
        self.prefill + self.decode + self.tools + self.overhead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POINT: OperatingPoint = OperatingPoint {
        first_token: 0.2,
        between_tokens: 0.02,
        prompt_tokens: 1_000.0,
        cached_tokens: 0.0,
        completion_tokens: 91.0,
        requests: 3.0,
        in_tools: 0.5,
        tool_calls: 0.0,
        call_marshalling: 0.0,
        marshalling: 0.0,
        overhead: 0.0,
        in_flight: 8.0,
        utilisation: 0.5,
    };

    fn is(found: f64, expected: f64) -> bool {
        (found - expected).abs() <= expected.abs() * 1e-9
    }

    /// Worked out by hand: 0.2 + 90 × 0.02 = 2 s; 3 × 2 + 0.5 = 6.5 s; 8 / 2 = 4 requests/s.
    #[test]
    fn latency_and_throughput() {
        let plan = Plan::of(&POINT, None, None);
        for (found, expected) in [
            (plan.request_latency, 2.0),
            (plan.run_latency, 6.5),
            (plan.requests_rate, 4.0),
            (plan.runs_rate, 4.0 / 3.0),
            (plan.completion_tokens_rate, 364.0),
        ] {
            assert!(is(found, expected), "{found} is not {expected}");
        }
        assert_eq!((plan.replicas, plan.run_cost), (None, None));
        let one = OperatingPoint {
            completion_tokens: 1.0,
            ..POINT
        };
        assert!(is(Plan::of(&one, None, None).request_latency, 0.2));
    }

    /// 3 × (2 + 0.01 + 0.19) + 0.5 = 7.1 s. The replica is free meanwhile, and does no fewer requests.
    #[test]
    fn marshalling_and_overhead_are_of_each_request_of_a_run() {
        let point = OperatingPoint {
            marshalling: 0.01,
            overhead: 0.19,
            ..POINT
        };
        let plan = Plan::of(&point, None, None);
        assert!(is(plan.run_latency, 7.1), "{}", plan.run_latency);
        assert!(is(plan.requests_rate, 4.0), "{}", plan.requests_rate);
    }

    /// 1 000 / 5 000 + 91 / (400 / 8) + 0.2 = 2.22 s a request; three of them and 4 calls of 0.125 + 0.002 s are 7.168 s.
    #[test]
    fn the_formula_by_speeds_has_the_terms_of_the_documents() {
        let point = OperatingPoint {
            marshalling: 0.01,
            overhead: 0.19,
            tool_calls: 4.0,
            call_marshalling: 0.002,
            ..POINT
        };
        let terms = LatencyTerms::of(&point);
        for (found, expected) in [
            (terms.prefill_rate.unwrap(), 5_000.0),
            (terms.decode_rate.unwrap(), 400.0),
            (terms.prefill, 0.6),
            (terms.decode, 3.0 * 91.0 / (400.0 / 8.0)),
            (terms.tools, 4.0 * (0.125 + 0.002)),
            (terms.overhead, 0.6),
            (terms.sum(), 7.168),
            // It has one space less a request.
            (Plan::of(&point, None, None).run_latency, 7.168 - 3.0 * 0.02),
        ] {
            assert!(is(found, expected), "{found} is not {expected}");
        }
        let cached = OperatingPoint {
            cached_tokens: 1_000.0,
            between_tokens: 0.0,
            ..POINT
        };
        let terms = LatencyTerms::of(&cached);
        assert_eq!((terms.prefill_rate, terms.decode_rate), (None, None));
    }

    /// 364 tokens a second are 1 310 400 an hour; 2.50 an hour is 1.9078 for a million of them.
    #[test]
    fn a_million_generated_tokens_cost_a_busy_replicas_time() {
        let rate = Rate::Gpus {
            hour: 2.5,
            gpus: 1.0,
        };
        let plan = Plan::of(&POINT, Some(rate), None);
        let hour = plan.completion_tokens_an_hour;
        assert!(is(hour, 1_310_400.0), "{hour}");
        let cost = plan.million_generated_cost.unwrap();
        assert_eq!(format!("{cost:.2}"), "1.91");
    }

    /// Of 3 × (1 000 × 0.5 + 91 × 2) / 10⁶, for 3 × 91 tokens.
    #[test]
    fn a_million_generated_tokens_by_token_include_their_prompts() {
        let rate = Rate::Tokens {
            prompt: 0.5,
            cached: 0.1,
            completion: 2.0,
        };
        let plan = Plan::of(&POINT, Some(rate), None);
        let cost = plan.million_generated_cost.unwrap();
        assert!(is(cost, 682.0 / 91.0), "{cost}");
    }

    /// At half of 4/3 runs/s, a replica does 2/3.
    #[test]
    fn replicas_have_headroom() {
        for (wanted, replicas) in [
            (0.1, 1.0),
            (2.0 / 3.0, 1.0),
            (0.7, 2.0),
            (10.0, 15.0),
            (10.1, 16.0),
        ] {
            let plan = Plan::of(&POINT, None, Some(wanted));
            assert_eq!(plan.replicas, Some(replicas), "{wanted}");
        }
    }

    /// 7.20 an hour for each of 2 GPUs is 0.004 a second; a run is 1 / (2/3) = 1.5 s of that: 0.006,
    /// for 3 × 1 091 tokens.
    #[test]
    fn cost_by_gpu_pays_for_idle_time() {
        let rate = Rate::Gpus {
            hour: 7.2,
            gpus: 2.0,
        };
        let plan = Plan::of(&POINT, Some(rate), None);
        assert!(is(plan.run_cost.unwrap(), 0.006));
        assert!(is(plan.million_tokens_cost.unwrap(), 6_000.0 / 3_273.0));
    }

    /// 3 × (200 × 0.5 + 800 × 0.1 + 91 × 2) / 10⁶ = 3 × 362 / 10⁶.
    #[test]
    fn cost_by_token_counts_the_cache() {
        let rate = Rate::Tokens {
            prompt: 0.5,
            cached: 0.1,
            completion: 2.0,
        };
        let point = OperatingPoint {
            cached_tokens: 800.0,
            ..POINT
        };
        let plan = Plan::of(&point, Some(rate), None);
        assert!(is(plan.run_cost.unwrap(), 0.001_086));
        let all = OperatingPoint {
            cached_tokens: 9_999.0,
            ..POINT
        };
        let plan = Plan::of(&all, Some(rate), None);
        assert!(is(plan.run_cost.unwrap(), 3.0 * 282.0 / 1e6));
    }
}
