//! The story that the demonstration tells, as data: who pays what, and what the providers say about it.
//!
//! Every sum that must be in a wallet in the end is written here by hand and not computed by the
//! program under demonstration.

/// Where a customer's money belongs.
pub(super) const EU: &str = "eu";
/// See [`EU`].
pub(super) const ASIA: &str = "asia";
/// The region whose wallet the orchestrator calls in process.
pub(super) const DEFAULT: &str = "default";

/// Rates of the reference service: one unit of the first is so many of the second.
pub(super) const RATES: [(&str, &str); 6] = [
    ("USD/EUR", "0.9200"),
    ("USD/JPY", "152.3700"),
    ("EUR/USD", "1.1000"),
    ("EUR/JPY", "161.0500"),
    ("USD/KWD", "0.3072"),
    ("GBP/USD", "1.2700"),
];

/// Customers whose region only the directory knows.
pub(super) const DIRECTORY: [(&str, &str); 1] = [("sora", ASIA)];

/// Wallets that are closed before anything is paid, by region and customer.
pub(super) const CLOSED_WALLETS: [(&str, &str); 1] = [(ASIA, "haru")];

/// An amount as people write it, and its currency.
pub(super) type Sum = (&'static str, &'static str);

/// Whose callbacks, and so in which format and with which signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Psp {
    /// Events, signed over the whole body.
    Stripe,
    /// Batches of items, each signed.
    Adyen,
    /// A gateway of ours, which speaks the canonical format.
    Paylink,
}

impl Psp {
    /// The name in subjects and in the configuration.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stripe => "stripe",
            Self::Adyen => "adyen",
            Self::Paylink => "paylink",
        }
    }
}

/// What must become of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    /// Credited once.
    Credited,
    /// Refused at first, and credited by the next generation of its saga when the success comes.
    CreditedAtSecondTry,
    /// The provider says no; nothing is credited.
    Refused,
    /// The wallet says no; what was done before is offset.
    TurnedBack,
    /// Somebody changed the notice on its way: a case, no saga of its own.
    Distrusted,
}

/// A payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Deposit {
    pub(super) psp: Psp,
    /// The provider's id of the payment.
    pub(super) id: &'static str,
    pub(super) customer: &'static str,
    /// Where the money belongs.
    pub(super) home: &'static str,
    /// Whether the callback says so.
    pub(super) claimed: bool,
    pub(super) paid: Sum,
    /// What the wallet must gain by it.
    pub(super) credited: Sum,
    pub(super) ends: Ends,
}

impl Deposit {
    const fn new(
        psp: Psp,
        id: &'static str,
        customer: &'static str,
        home: &'static str,
        paid: Sum,
    ) -> Self {
        Self {
            psp,
            id,
            customer,
            home,
            claimed: true,
            paid,
            credited: paid,
            ends: Ends::Credited,
        }
    }

    const fn converted_to(self, credited: Sum) -> Self {
        Self { credited, ..self }
    }

    const fn unclaimed(self) -> Self {
        Self {
            claimed: false,
            ..self
        }
    }

    const fn ends(self, ends: Ends) -> Self {
        Self { ends, ..self }
    }
}

/// What a provider says of a payment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Says {
    /// The money is there.
    Paid,
    /// The same money, told by another kind of event.
    ChargePaid,
    /// Refused.
    Refused,
    /// Expired.
    Expired,
    /// Not decided yet.
    Pending,
}

impl Says {
    /// Whether this may lead to a credit.
    pub(super) fn is_paid(self) -> bool {
        match self {
            Self::Paid | Self::ChargePaid => true,
            Self::Refused | Self::Expired | Self::Pending => false,
        }
    }
}

/// One notice about one payment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notice(pub(super) &'static Deposit, pub(super) Says);

/// Something that happens to the system.
#[derive(Debug, Clone, Copy)]
pub(super) enum Telling {
    /// A provider posts a callback; the text is the provider's own id of the event.
    Callback(&'static str, &'static [Notice]),
    /// A gateway posts what is no callback.
    Garbage(&'static str, &'static str),
    /// An operator confirms a payment that its provider left pending.
    Confirmation(&'static Deposit),
}

/// What is told at once, before the next act waits for its outcome.
#[derive(Debug, Clone, Copy)]
pub(super) struct Act {
    pub(super) title: &'static str,
    pub(super) tellings: &'static [Telling],
}

const fn stripe(
    id: &'static str,
    customer: &'static str,
    home: &'static str,
    paid: Sum,
) -> Deposit {
    Deposit::new(Psp::Stripe, id, customer, home, paid)
}

const fn adyen(id: &'static str, customer: &'static str, home: &'static str, paid: Sum) -> Deposit {
    Deposit::new(Psp::Adyen, id, customer, home, paid)
}

const fn paylink(
    id: &'static str,
    customer: &'static str,
    home: &'static str,
    paid: Sum,
) -> Deposit {
    Deposit::new(Psp::Paylink, id, customer, home, paid)
}

static S1: Deposit = stripe("pi_demo_0001", "ana", EU, ("19.99", "EUR"));
static S2: Deposit = stripe("pi_demo_0002", "ana", EU, ("250.00", "EUR"));
static S3: Deposit =
    stripe("pi_demo_0003", "bruno", EU, ("75.00", "USD")).converted_to(("69.00", "EUR"));
static S4: Deposit = stripe("pi_demo_0004", "kenji", ASIA, ("12000", "JPY"));
static S5: Deposit =
    stripe("pi_demo_0005", "kenji", ASIA, ("100.00", "USD")).converted_to(("15237", "JPY"));
static S6: Deposit = stripe("pi_demo_0006", "lina", DEFAULT, ("49.90", "USD"));
static S7: Deposit =
    stripe("pi_demo_0007", "lina", DEFAULT, ("10.00", "EUR")).converted_to(("11.00", "USD"));
static S8: Deposit =
    stripe("pi_demo_0008", "omar", DEFAULT, ("35.00", "USD")).ends(Ends::CreditedAtSecondTry);
static S9: Deposit = stripe("pi_demo_0009", "noor", ASIA, ("12.340", "KWD"));
static S10: Deposit = stripe("pi_demo_0010", "greta", EU, ("60.00", "EUR"));

static A1: Deposit = adyen("DEMOPSP000000001", "bruno", EU, ("40.00", "EUR"));
static A2: Deposit = adyen("DEMOPSP000000002", "mei", ASIA, ("5000", "JPY"));
static A3: Deposit = adyen("DEMOPSP000000003", "ivan", EU, ("15.50", "GBP"));
static A4: Deposit =
    adyen("DEMOPSP000000004", "mei", ASIA, ("20.00", "EUR")).converted_to(("3221", "JPY"));
static A5: Deposit = adyen("DEMOPSP000000005", "haru", ASIA, ("900", "JPY")).ends(Ends::TurnedBack);
static A6: Deposit =
    adyen("DEMOPSP000000006", "pavel", DEFAULT, ("12.00", "USD")).ends(Ends::Refused);
static A7: Deposit = adyen("DEMOPSP000000007", "oskar", DEFAULT, ("8.25", "USD"));
static A8: Deposit =
    adyen("DEMOPSP000000008", "eva", DEFAULT, ("99.00", "USD")).ends(Ends::Distrusted);
static A9: Deposit = adyen("DEMOPSP000000009", "ivan", EU, ("22.00", "GBP"));

static P1: Deposit = paylink("pl-1", "sora", ASIA, ("42.00", "USD")).unclaimed();
static P2: Deposit = paylink("pl-2", "sora", ASIA, ("3.50", "USD")).unclaimed();
static P3: Deposit = paylink("pl-3", "tariq", DEFAULT, ("5.250", "BHD"));
static P4: Deposit = paylink("pl-4", "wanda", EU, ("120.00", "EUR"));
static P5: Deposit = paylink("pl-5", "zoe", DEFAULT, ("15.00", "USD")).unclaimed();
static P6: Deposit = paylink("pl-6", "noor", ASIA, ("30.00", "USD")).converted_to(("9.216", "KWD"));
// 1.905 lies exactly between two cents, and half goes to the even one.
static P7: Deposit = paylink("pl-7", "ivan", EU, ("1.50", "GBP")).converted_to(("1.90", "USD"));
static P8: Deposit = paylink("pl-8", "zoe", DEFAULT, ("6.40", "USD")).unclaimed();
static P9: Deposit = paylink(
    "inv 7/2026 > *.draft",
    "S\u{f8}ren & S\u{f8}nner/7",
    EU,
    ("80.00", "EUR"),
);
static P10: Deposit = paylink("pl-10", "yuki", ASIA, ("2500", "JPY")).ends(Ends::Refused);

use Says::{ChargePaid, Expired, Paid, Pending, Refused};
use Telling::{Callback, Confirmation, Garbage};

/// The body of [`Garbage`]: cut off on its way.
pub(super) const CUT_OFF: &str =
    r#"{"external_id":"pl-11","status":"paid","amount":"17.00","currency":"#;

/// The whole story.
pub(super) static ACTS: [Act; 2] = [
    Act {
        title: "callbacks of three providers arrive at once",
        tellings: &[
            Callback("evt_demo_0001", &[Notice(&S1, Paid)]),
            Callback("evt_demo_0002", &[Notice(&S1, ChargePaid)]),
            Callback("evt_demo_0003", &[Notice(&S2, Paid)]),
            Callback("evt_demo_0003", &[Notice(&S2, Paid)]),
            Callback("evt_demo_0004", &[Notice(&S3, Paid)]),
            Callback("evt_demo_0005", &[Notice(&S4, Paid)]),
            Callback("evt_demo_0006", &[Notice(&S5, ChargePaid)]),
            Callback("evt_demo_0007", &[Notice(&S6, Paid)]),
            Callback("evt_demo_0008", &[Notice(&S7, Paid)]),
            Callback("evt_demo_0009", &[Notice(&S8, Refused)]),
            Callback("evt_demo_0010", &[Notice(&S9, Paid)]),
            Callback("evt_demo_0011", &[Notice(&S10, Pending)]),
            Callback(
                "batch-1",
                &[Notice(&A1, Paid), Notice(&A2, Paid), Notice(&A3, Paid)],
            ),
            Callback("notice-4", &[Notice(&A4, Paid)]),
            Callback("notice-4", &[Notice(&A4, Paid)]),
            Callback("notice-5", &[Notice(&A5, Paid)]),
            Callback("notice-6", &[Notice(&A6, Refused)]),
            Callback("batch-2", &[Notice(&A7, Paid), Notice(&A8, Paid)]),
            Callback("ntf-1", &[Notice(&P1, Paid)]),
            Callback("ntf-3", &[Notice(&P3, Paid)]),
            Callback("ntf-4", &[Notice(&P4, Pending)]),
            Callback("ntf-5", &[Notice(&P5, Paid)]),
            Callback("ntf-5", &[Notice(&P5, Paid)]),
            Callback("ntf-6", &[Notice(&P6, Paid)]),
            Callback("ntf-7", &[Notice(&P7, Paid)]),
            Callback("ntf-8", &[Notice(&P8, Paid)]),
            Callback("ntf-9", &[Notice(&P9, Paid)]),
            Callback("ntf-10", &[Notice(&P10, Expired)]),
            Garbage("ntf-11", CUT_OFF),
        ],
    },
    Act {
        title: "what was open is decided, and known facts are told again",
        tellings: &[
            Callback("evt_demo_0012", &[Notice(&S8, Paid)]),
            Callback("evt_demo_0013", &[Notice(&S10, Paid)]),
            Callback("batch-3", &[Notice(&A1, Paid), Notice(&A9, Paid)]),
            Callback("ntf-2", &[Notice(&P2, Paid)]),
            Callback("ntf-8-again", &[Notice(&P8, Paid)]),
            Confirmation(&P4),
        ],
    },
];

/// Every payment of the story once, in the order of its first notice.
pub(super) fn deposits() -> Vec<&'static Deposit> {
    let mut deposits: Vec<&'static Deposit> = Vec::new();
    for Notice(deposit, _) in notices() {
        if !deposits
            .iter()
            .any(|known| (known.psp, known.id) == (deposit.psp, deposit.id))
        {
            deposits.push(deposit);
        }
    }
    deposits
}

/// Every telling, in order.
pub(super) fn tellings() -> impl Iterator<Item = &'static Telling> {
    ACTS.iter().flat_map(|act| act.tellings)
}

fn notices() -> impl Iterator<Item = &'static Notice> {
    tellings().flat_map(|telling| match telling {
        Callback(_, notices) => *notices,
        Garbage(..) | Confirmation(_) => &[],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_story_holds_what_it_is_to_show() {
        let callbacks = tellings()
            .filter(|telling| !matches!(telling, Confirmation(_)))
            .count();
        assert!(callbacks >= 30, "{callbacks}");
        let deposits = deposits();
        for psp in [Psp::Stripe, Psp::Adyen, Psp::Paylink] {
            assert!(deposits.iter().any(|deposit| deposit.psp == psp));
        }
        for home in [EU, ASIA, DEFAULT] {
            assert!(deposits.iter().any(|deposit| deposit.home == home));
        }
        let converted = |deposit: &&&Deposit| deposit.paid != deposit.credited;
        assert!(deposits.iter().filter(converted).count() >= 3);
        for ends in [
            Ends::CreditedAtSecondTry,
            Ends::Refused,
            Ends::TurnedBack,
            Ends::Distrusted,
        ] {
            assert!(deposits.iter().any(|deposit| deposit.ends == ends));
        }
        let currencies: BTreeSet<&str> =
            deposits.iter().map(|deposit| deposit.credited.1).collect();
        assert!(currencies.is_superset(&BTreeSet::from(["JPY", "KWD", "EUR", "USD"])));
    }

    #[test]
    fn what_must_be_credited_is_what_the_rates_say() {
        use contracts::money::{Currency, CurrencyCode, Money, parse_decimal};
        use contracts::quote::{Rounding, convert};
        for deposit in deposits() {
            let currency =
                |code| Currency::iso(CurrencyCode::new(code).expect("code")).expect("ISO");
            let money = |(text, code)| Money::parse(text, currency(code)).expect("amount");
            let (paid, credited) = (money(deposit.paid), money(deposit.credited));
            if deposit.paid.1 == deposit.credited.1 {
                assert_eq!(paid, credited, "{}", deposit.id);
                continue;
            }
            let pair = format!("{}/{}", deposit.paid.1, deposit.credited.1);
            let (_, rate) = RATES
                .iter()
                .find(|(known, _)| *known == pair)
                .expect("rate");
            let rate = parse_decimal(rate).expect("rate");
            let found = convert(paid, rate, credited.currency(), Rounding::HalfEven);
            assert_eq!(found.expect("sum"), credited, "{}", deposit.id);
        }
    }
}
