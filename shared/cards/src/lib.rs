//! What a card is: ids, keys, sizes, states and every decision. Pure: no I/O, no clock, no tokio.
//!
//! In come plain values (a card as it was read, what a HEAD said, the database's time); out goes an enum that names
//! what must happen. Nothing here fails for a reason outside its arguments, so all of it is tested by the hundred.
//!
//! - [`state`]: the state machine, in one file.
//! - [`confirm`]: from a pending card and what the store shows, which version is taken (R-B2 to R-B7).
//! - [`look`]: what a card whose time has come asks of the timer (R-H1).
//! - [`purge`]: what the bucket may hold of a card, and what a clean listing proves (R-E2, R-E4).
//! - [`timing`]: every span of time the protocols rest on.
//! - [`retry`]: how often and how long a fault is retried.

pub mod card;
pub mod confirm;
pub mod facts;
pub mod id;
pub mod key;
pub mod kind;
pub mod look;
pub mod problem;
pub mod purge;
pub mod retry;
pub mod size;
pub mod state;
pub mod timing;

pub use card::{Announced, Card, ConfirmedBy, Keep, Parked, Ticket, TicketMethod};
pub use facts::{Derivative, DerivativeName, Facts};
pub use id::{CardId, ETag, Ids, LeaseToken, MessageId, OwnerId, Sha256, VersionId};
pub use key::{DerivedKey, FileKey, SourceKey};
pub use kind::MediaType;
pub use look::Look;
pub use problem::{Problem, ProblemCode};
pub use size::ByteCount;
pub use state::{Lease, ObjectFacts, State, StateName};

/// The database's time. Nothing here reads a clock; callers pass what `now()` answered.
pub type Timestamp = chrono::DateTime<chrono::Utc>;
