//! Operations of a range of time, a page at a time: what reconciliation reads.

use super::{Ledger, LedgerError, rows, text};
use contracts::command::OperationRange;
use contracts::reply::{OperationView, WalletView};
use jiff::Timestamp;

/// Bytes of the operations of one page at most, so that an answer fits one message of a server's default
/// size (1 MiB) in either encoding.
const MAX_PAGE_LEN: usize = 384 * 1024;

/// Bytes an operation takes beside its ids and its answer.
const FIXED_LEN: usize = 256;

impl Ledger {
    /// A page of the operations that first arrived in a range, oldest first.
    ///
    /// # Errors
    /// [`LedgerError::Busy`], [`LedgerError::Unavailable`] or [`LedgerError::Corrupt`].
    pub async fn view_operations(&self, range: &OperationRange) -> Result<WalletView, LedgerError> {
        let limit = match range.limit.unwrap_or(OperationRange::MAX_LIMIT) {
            limit if (1..=OperationRange::MAX_LIMIT).contains(&limit) => limit,
            limit => {
                let most = OperationRange::MAX_LIMIT;
                return Ok(invalid(
                    "limit",
                    format!("{limit} is not within 1 to {most}"),
                ));
            }
        };
        let after = match &range.after {
            // Keys are never empty, so that the first page begins with the range itself.
            None => (text::time(range.since), ""),
            Some(place) => match Place::parse(place) {
                Some(Place { at, key }) => (text::time(at.max(range.since)), key),
                None => {
                    let message = "give `next` of the page before, unchanged".to_owned();
                    return Ok(invalid("after", message));
                }
            },
        };
        let found = sqlx::query(rows::OPERATIONS)
            .bind(&after.0)
            .bind(after.1)
            .bind(text::time(range.until))
            // One more tells whether there is another page.
            .bind(i64::from(limit) + 1)
            .fetch_all(&self.reader)
            .await
            .map_err(LedgerError::of_statement)?;
        let mut operations: Vec<OperationView> = Vec::new();
        let (mut len, mut next) = (0, None);
        for row in &found {
            let view = rows::operation_view(row)?;
            len += FIXED_LEN + view.operation_id.as_str().len();
            len += rows::get::<String>(row, "reply")?.len();
            len += view.saga_id.as_ref().map_or(0, |saga| saga.as_str().len());
            let full = i64::try_from(operations.len()).unwrap_or(i64::MAX) >= i64::from(limit);
            if full || (len > MAX_PAGE_LEN && !operations.is_empty()) {
                next = operations.last().map(Place::of);
                break;
            }
            operations.push(view);
        }
        Ok(WalletView::Operations { operations, next })
    }
}

/// Where a page ended: `<time>/<operation key>`; a key has no slash.
struct Place<'a> {
    at: Timestamp,
    key: &'a str,
}

impl<'a> Place<'a> {
    fn of(view: &OperationView) -> String {
        format!(
            "{}/{}",
            text::time(view.created_at),
            view.operation_id.key()
        )
    }

    fn parse(place: &'a str) -> Option<Self> {
        let (at, key) = place.split_once('/')?;
        let at = at.parse().ok()?;
        // Nothing that a database could refuse as text.
        key.bytes()
            .all(|byte| byte.is_ascii_graphic())
            .then_some(Self { at, key })
    }
}

fn invalid(field: &str, message: String) -> WalletView {
    WalletView::Invalid {
        field: format!("operations.{field}"),
        message,
    }
}
