//! A layer that was made to do harm is refused, with the name of the entry and the rule; nothing outside the target is touched, and
//! memory is bounded (issue 3, "Bad input"; escape-classes.md, 3.5).

mod bombs;
mod headers;
mod kinds;
mod links;
mod names;
mod pax;
mod random;
mod support;
