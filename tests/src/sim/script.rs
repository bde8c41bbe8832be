//! What happens in a world: a list of inputs, made from a seed or read from a file.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::chance::hash;

/// Regions of every world; the first one's wallet is called in process.
pub const REGIONS: [&str; 3] = ["default", "eu", "asia"];

/// A whole world: replayed, it does the same again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// Decides everything that is not listed: latencies, and the faults unless they are given.
    pub seed: u64,
    /// What was broken when it was written; for a person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breach: Option<String>,
    /// In order of time.
    pub inputs: Vec<Input>,
    /// Exactly these faults; without them the seed decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<BTreeSet<String>>,
}

/// Something from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Input {
    /// Its number, which stays its own when others are taken away.
    pub number: u64,
    /// When, in milliseconds from the start.
    pub at: u64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What can come from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum What {
    /// A provider's callback.
    Callback {
        /// The provider's id of the payment.
        external_id: String,
        /// The rest of its body.
        body: Value,
    },
    /// A start of another workflow.
    Start {
        /// Which.
        workflow: String,
        /// The caller's id.
        id: String,
        /// What it reads.
        input: Value,
    },
    /// A signal.
    Signal {
        /// To which saga.
        saga: String,
        /// Its name.
        name: String,
        /// Its id.
        id: String,
        /// What it says.
        body: Value,
    },
    /// A request to turn back.
    Cancel {
        /// Which saga.
        saga: String,
        /// Its id.
        id: String,
    },
    /// A movement that no saga makes: customers spend and earn.
    Customer {
        /// In which region.
        region: String,
        /// Who.
        customer: String,
        /// `credit` or `debit`.
        movement: String,
        /// How much.
        amount_minor: i64,
    },
    /// A wallet is closed.
    Close {
        /// In which region.
        region: String,
        /// Whose.
        customer: String,
    },
    /// A wallet is opened again.
    Reopen {
        /// In which region.
        region: String,
        /// Whose.
        customer: String,
    },
    /// Other rates from now on.
    Rates {
        /// Which table.
        table: u64,
    },
    /// A replica dies and is started again.
    Crash {
        /// Which.
        replica: usize,
        /// For so long, in milliseconds.
        down: u64,
    },
    /// A replica stops as it should and is started again.
    Stop {
        /// Which.
        replica: usize,
        /// For so long.
        down: u64,
    },
    /// A replica stands still, and goes on as if nothing had been.
    Freeze {
        /// Which.
        replica: usize,
        /// For so long.
        still: u64,
    },
    /// A region cannot be reached.
    RegionDown {
        /// Which.
        region: String,
        /// For so long.
        down: u64,
        /// Requests vanish, instead of being answered that nobody is there.
        silent: bool,
    },
}

impl Input {
    fn at(at: u64, what: What) -> Self {
        Self {
            number: 0,
            at,
            what,
        }
    }
}

impl What {
    /// The kind, for counting.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Callback { .. } => "callback",
            Self::Start { .. } => "start",
            Self::Signal { .. } => "signal",
            Self::Cancel { .. } => "cancel",
            Self::Customer { .. } => "customer",
            Self::Close { .. } => "close",
            Self::Reopen { .. } => "reopen",
            Self::Rates { .. } => "rates",
            Self::Crash { .. } => "crash-at",
            Self::Stop { .. } => "stop-at",
            Self::Freeze { .. } => "freeze-at",
            Self::RegionDown { .. } => "region-down",
        }
    }
}

/// Kinds of inputs that must all have occurred somewhere.
pub const INPUT_KINDS: [&str; 12] = [
    "callback",
    "start",
    "signal",
    "cancel",
    "customer",
    "close",
    "reopen",
    "rates",
    "crash-at",
    "stop-at",
    "freeze-at",
    "region-down",
];

/// Draws one after another; only what is written into a script comes from here.
struct Draws {
    seed: u64,
    count: u64,
}

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.count += 1;
        hash(self.seed, &["script", &self.count.to_string()]) % limit
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    fn of<'a>(&mut self, options: &[&'a str]) -> &'a str {
        let index = self.below(u64::try_from(options.len()).unwrap_or(1));
        options[usize::try_from(index).unwrap_or(0)]
    }

    fn customer(&mut self) -> String {
        format!("c{}", self.below(4))
    }

    fn amount(&mut self) -> i64 {
        i64::try_from(100 + 50 * self.below(40)).unwrap_or(100)
    }
}

/// How long things are sent to a world, in milliseconds.
const SPAN: u64 = 40_000;

impl Script {
    /// The world of a seed.
    #[must_use]
    pub fn of_seed(seed: u64) -> Self {
        let mut draws = Draws { seed, count: 0 };
        let mut inputs = Vec::new();
        // So that there is something to take.
        for customer in 0..4 {
            for region in REGIONS {
                inputs.push(Input {
                    number: 0,
                    at: 0,
                    what: What::Customer {
                        region: region.to_owned(),
                        customer: format!("c{customer}"),
                        movement: "credit".to_owned(),
                        amount_minor: 1_000,
                    },
                });
            }
        }
        for number in 0..3 + draws.below(6) {
            let at = draws.below(SPAN);
            match draws.below(8) {
                0..=3 => deposit(&mut draws, &mut inputs, number, at),
                4 => transfer(&mut draws, &mut inputs, number, at),
                5 | 6 => withdrawal(&mut draws, &mut inputs, number, at),
                _ => instalments(&mut draws, &mut inputs, number, at),
            }
        }
        for _ in 0..draws.below(4) {
            disturb(&mut draws, &mut inputs);
        }
        inputs.sort_by_key(|input| input.at);
        for (number, input) in (1..).zip(&mut inputs) {
            input.number = number;
        }
        Self {
            seed,
            breach: None,
            inputs,
            faults: None,
        }
    }
}

fn deposit(draws: &mut Draws, inputs: &mut Vec<Input>, number: u64, at: u64) {
    let external_id = format!("p{number}");
    let saga = format!("deposit/testpay/{external_id}");
    let (region, customer) = (draws.of(&REGIONS), draws.customer());
    let amount = draws.amount();
    let wallet_currency = draws.of(&["EUR", "EUR", "USD"]);
    let callback = |status: &str, amount: i64, event: &str| What::Callback {
        external_id: external_id.clone(),
        body: json!({
            "status": status, "event_type": event, "amount_minor": amount, "currency": "EUR",
            "customer": customer, "region": region, "wallet_currency": wallet_currency,
        }),
    };
    let mut push = |at, what| inputs.push(Input::at(at, what));
    match draws.below(8) {
        0 => {
            push(at, callback("pending", amount, "created"));
            if !draws.one_in(4) {
                let later = at + draws.below(20_000);
                let status = draws.of(&["paid", "paid", "failed"]);
                push(later, callback(status, amount, "confirmed"));
            }
        }
        1 => {
            push(at, callback("failed", amount, "failed"));
            push(at + draws.below(8_000), callback("paid", amount, "paid"));
        }
        _ => push(at, callback("paid", amount, "paid")),
    }
    if draws.one_in(3) {
        push(
            at + draws.below(15_000),
            callback("paid", amount, "succeeded"),
        );
    }
    if draws.one_in(6) {
        push(
            at + draws.below(15_000),
            callback("paid", amount + 7, "paid"),
        );
    }
    cancel_now_and_then(draws, inputs, &saga, at);
    spend_now_and_then(draws, inputs, region, &customer, amount, &saga, at);
}

fn party(draws: &mut Draws) -> Value {
    json!({ "region": draws.of(&REGIONS), "customer": draws.customer() })
}

fn start(inputs: &mut Vec<Input>, at: u64, workflow: &str, number: u64, input: &Value) -> String {
    let id = format!("{workflow}-{number}");
    let what = What::Start {
        workflow: workflow.to_owned(),
        id: id.clone(),
        input: input.clone(),
    };
    inputs.push(Input::at(at, what));
    format!("{workflow}/{id}")
}

fn transfer(draws: &mut Draws, inputs: &mut Vec<Input>, number: u64, at: u64) {
    let (from, to) = (party(draws), party(draws));
    let input = json!({ "from": from, "to": to, "amount_minor": draws.amount() });
    let saga = start(inputs, at, "transfer", number, &input);
    if draws.one_in(3) {
        start(inputs, at + draws.below(10_000), "transfer", number, &input);
    }
    cancel_now_and_then(draws, inputs, &saga, at);
}

fn withdrawal(draws: &mut Draws, inputs: &mut Vec<Input>, number: u64, at: u64) {
    let approvals = 1 + draws.below(2);
    let input = json!({
        "from": party(draws), "amount_minor": draws.amount(), "approvals": approvals,
        "cool_down_seconds": draws.below(90),
    });
    let saga = start(inputs, at, "withdrawal", number, &input);
    for approval in 0..approvals + draws.below(2) {
        let signal = What::Signal {
            saga: saga.clone(),
            name: draws
                .of(&["approve", "approve", "approve", "reject"])
                .to_owned(),
            id: format!("s{approval}"),
            body: json!({ "by": format!("person-{approval}") }),
        };
        // Before the saga exists, while it works, or when it has ended.
        let when = (at + draws.below(25_000)).saturating_sub(3_000);
        let again = draws.one_in(4).then(|| when + draws.below(9_000));
        for at in std::iter::once(when).chain(again) {
            inputs.push(Input::at(at, signal.clone()));
        }
    }
    cancel_now_and_then(draws, inputs, &saga, at);
}

fn instalments(draws: &mut Draws, inputs: &mut Vec<Input>, number: u64, at: u64) {
    let input = json!({
        "left": party(draws), "right": party(draws), "amount_minor": draws.amount(),
        "count": draws.below(3), "refuse": draws.one_in(3),
    });
    let saga = start(inputs, at, "instalments", number, &input);
    cancel_now_and_then(draws, inputs, &saga, at);
}

fn cancel_now_and_then(draws: &mut Draws, inputs: &mut Vec<Input>, saga: &str, at: u64) {
    let times = match draws.below(5) {
        0 => 2,
        1 | 2 => 1,
        _ => 0,
    };
    for number in 0..times {
        // Most of all while the first commands are on their way.
        let wait = if draws.one_in(2) { 600 } else { 20_000 };
        let at = at + draws.below(wait);
        let (saga, id) = (saga.to_owned(), format!("x{number}"));
        inputs.push(Input::at(at, What::Cancel { saga, id }));
    }
}

/// The customer spends what was credited, so that it cannot be taken back; money comes, and somebody asks
/// to turn back once more.
fn spend_now_and_then(
    draws: &mut Draws,
    inputs: &mut Vec<Input>,
    region: &str,
    customer: &str,
    amount: i64,
    saga: &str,
    at: u64,
) {
    if !draws.one_in(3) {
        return;
    }
    let movement = |movement: &str, amount_minor| What::Customer {
        region: region.to_owned(),
        customer: customer.to_owned(),
        movement: movement.to_owned(),
        amount_minor,
    };
    let mut push = |at, what| inputs.push(Input::at(at, what));
    let spent = at + draws.below(9_000);
    push(spent, movement("debit", 1_000));
    push(spent + draws.below(500), movement("debit", amount));
    push(
        spent + 20_000 + draws.below(20_000),
        movement("credit", amount + 1_000),
    );
    let (saga, id) = (saga.to_owned(), "again".to_owned());
    push(spent + 42_000, What::Cancel { saga, id });
}

fn disturb(draws: &mut Draws, inputs: &mut Vec<Input>) {
    let at = draws.below(SPAN);
    let replica = usize::try_from(draws.below(2)).unwrap_or(0);
    let region = draws.of(&REGIONS).to_owned();
    let what = match draws.below(8) {
        0 => What::Crash {
            replica,
            down: draws.below(30_000),
        },
        1 => What::Stop {
            replica,
            down: draws.below(10_000),
        },
        2 | 3 => What::Freeze {
            replica,
            still: draws.below(45_000),
        },
        4 => What::RegionDown {
            region: draws.of(&REGIONS[1..]).to_owned(),
            down: draws.below(60_000),
            silent: draws.one_in(2),
        },
        5 => What::Rates {
            table: 1 + draws.below(2),
        },
        _ => {
            let customer = draws.customer();
            let opened = What::Reopen {
                region: region.clone(),
                customer: customer.clone(),
            };
            inputs.push(Input::at(at + draws.below(60_000), opened));
            What::Close { region, customer }
        }
    };
    inputs.push(Input::at(at, what));
}
