//! What a wallet holds of one movement: the movement, its offset, and what people booked to correct it.
//! Pure.
//!
//! A correction is booked in the same region under the movement's id with a suffix: the wallet books nothing
//! under an id for which it has an answer.

use contracts::command::Movement;
use contracts::id::{CustomerId, OperationId};
use contracts::money::{Currency, Money};
use contracts::reply::OperationState;

use super::about::direction;
use super::difference::{Book, shell};
use super::sides::{Move, OperationSide, Sides};

/// How many corrections of one movement are looked for.
pub(super) const CORRECTIONS: u32 = 64;

const SUFFIX: &str = "/correction:";

/// The id of a movement's correction; the first one is number 1.
pub(super) fn correction(of: &OperationId, number: u32) -> OperationId {
    let text = format!("{of}{SUFFIX}{number}");
    OperationId::new(text).unwrap_or_else(|_| of.clone())
}

/// The id that one of a correction corrects.
pub(super) fn corrected(id: &str) -> Option<&str> {
    let (of, number) = id.rsplit_once(SUFFIX)?;
    number.parse::<u32>().ok().map(|_| of)
}

/// What a wallet must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// The movement as asked for.
    Asked,
    /// The same, or its offset as well.
    AskedOrOffset,
    Nothing,
}

/// A movement in its wallet.
pub(super) struct Lot<'a> {
    movement: &'a Move,
    pub(super) original: Option<&'a OperationSide>,
    /// Its revert, whatever that came to.
    revert: Option<&'a OperationSide>,
    pub(super) corrections: Vec<&'a OperationSide>,
}

/// Minor units by customer and currency, credits less debits.
type Net<'a> = Vec<(&'a CustomerId, Currency, i128)>;

impl<'a> Lot<'a> {
    pub(super) fn of(movement: &'a Move, sides: &'a Sides) -> Self {
        let id = &movement.operation_id;
        let operation = |id: &OperationId| sides.operation(&movement.region, id);
        let corrections = sides
            .operations
            .iter()
            .filter(|operation| operation.region == movement.region && operation.is_update())
            .filter(|operation| {
                corrected(operation.view.operation_id.as_str()) == Some(id.as_str())
            });
        Self {
            movement,
            original: operation(id),
            revert: movement
                .undo_id
                .as_ref()
                .and_then(operation)
                .or_else(|| operation(&id.revert())),
            corrections: corrections.collect(),
        }
    }

    /// Its offset, where the revert was one.
    pub(super) fn offset(&self) -> Option<&'a OperationSide> {
        self.revert.filter(|revert| revert.booked().is_some())
    }

    pub(super) fn agrees(&self, holds: Holds) -> bool {
        self.is(holds, self.standing_corrections())
    }

    /// Whether it would agree if nobody had corrected it.
    pub(super) fn agrees_without_corrections(&self, holds: Holds) -> bool {
        self.is(holds, std::iter::empty())
    }

    pub(super) fn standing_corrections(&self) -> impl Iterator<Item = &'a OperationSide> {
        let corrections = self.corrections.iter().copied();
        corrections.filter(|correction| correction.stands())
    }

    fn is(&self, holds: Holds, corrections: impl Iterator<Item = &'a OperationSide>) -> bool {
        let net = self.net(corrections);
        let offset = holds == Holds::AskedOrOffset
            && net.is_empty()
            && self
                .original
                .is_some_and(|original| original.view.state == OperationState::Reverted);
        offset || self.less(net, holds).is_empty()
    }

    /// What moved in sum.
    fn net(&self, corrections: impl Iterator<Item = &'a OperationSide>) -> Net<'a> {
        let offset = self.offset();
        // Offset under an id that is not known here: in full, as the wallet says.
        let is_offset_elsewhere = |original: &&OperationSide| {
            original.view.state == OperationState::Reverted && offset.is_none()
        };
        let original = self
            .original
            .filter(|original| !is_offset_elsewhere(original));
        let mut net = Net::new();
        for operation in original.into_iter().chain(offset).chain(corrections) {
            if let Some((customer, movement, money)) = operation.booked() {
                add(&mut net, customer, movement, money);
            }
        }
        net
    }

    /// A sum without what must be held.
    fn less(&self, mut net: Net<'a>, holds: Holds) -> Net<'a> {
        let update = &self.movement.update;
        if holds != Holds::Nothing {
            let back = opposite(update.movement);
            add(&mut net, &update.customer, back, update.money);
        }
        net
    }

    /// The movement itself, for a wallet that does not know it.
    pub(super) fn book(&self) -> Book {
        let update = &self.movement.update;
        Book {
            operation: self.movement.operation_id.clone(),
            arguments: arguments(&update.customer, update.movement, update.money),
            corrects: false,
        }
    }

    /// The next correction towards what must be held; `None` where none is needed, or none can be booked.
    pub(super) fn correct(&self, holds: Holds) -> Option<Book> {
        let rest = self.less(self.net(self.standing_corrections()), holds);
        // First what has to be taken away.
        let &(customer, currency, minor) = rest.iter().max_by_key(|(_, _, minor)| *minor)?;
        let movement = if minor > 0 {
            Movement::Debit
        } else {
            Movement::Credit
        };
        let money = Money::new(i64::try_from(minor.abs()).ok()?, currency);
        let taken = |id: &OperationId| {
            let mut corrections = self.corrections.iter();
            corrections.any(|correction| correction.view.operation_id == *id)
        };
        let operation = (1..=CORRECTIONS)
            .map(|number| correction(&self.movement.operation_id, number))
            .find(|id| !taken(id))?;
        Some(Book {
            operation,
            arguments: arguments(customer, movement, money),
            corrects: true,
        })
    }

    /// Whether the wallet answers for the movement's revert already, and repeats that.
    pub(super) fn has_revert(&self) -> bool {
        self.revert.is_some()
    }
}

fn add<'a>(net: &mut Net<'a>, customer: &'a CustomerId, movement: Movement, money: Money) {
    let minor = i128::from(money.amount_minor());
    let minor = match movement {
        Movement::Credit => minor,
        Movement::Debit => -minor,
    };
    let currency = money.currency();
    match net
        .iter_mut()
        .find(|(of, held, _)| *of == customer && *held == currency)
    {
        Some((_, _, sum)) => *sum += minor,
        None => net.push((customer, currency, minor)),
    }
    net.retain(|(_, _, sum)| *sum != 0);
}

fn opposite(movement: Movement) -> Movement {
    match movement {
        Movement::Credit => Movement::Debit,
        Movement::Debit => Movement::Credit,
    }
}

fn arguments(customer: &CustomerId, movement: Movement, money: Money) -> String {
    let currency = money.currency();
    format!(
        "{} {} {} {} --decimals {}",
        shell(customer.as_str()),
        direction(movement),
        money.decimal_text(),
        currency.code(),
        currency.exponent()
    )
}
