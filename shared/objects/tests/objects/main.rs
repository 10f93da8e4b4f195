//! The crate as others use it. `answers`, `fake`, `link` and `ticket` need nothing; `contract` and `walk` run on the fake and on the real store;
//! `tickets`, `rights` and `setup` need the real store: `./dev servers`.

#[cfg(test)]
mod answers;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod fake;
#[cfg(test)]
mod link;
#[cfg(test)]
mod rights;
#[cfg(test)]
mod setup;
#[cfg(test)]
mod ticket;
#[cfg(test)]
mod tickets;
#[cfg(test)]
mod walk;
#[cfg(test)]
mod world;
