//! `creel image default`.

use std::ffi::OsStr;

use super::super::paths::text;
use super::super::refusal::Refusal;
use super::{existing, store_with};

pub(super) fn main(name: Option<&OsStr>) -> Result<String, Refusal> {
    let chosen = match name.map(|n| text("NAME", n)).transpose()? {
        None => match existing()? {
            Some(store) => store.default_name()?,
            None => None,
        },
        Some("host") => match existing()? {
            Some(store) => store.set_default(None)?,
            None => None,
        },
        Some(name) => store_with(name)?.set_default(Some(name))?,
    };
    Ok(chosen.unwrap_or_else(|| "host".to_owned()) + "\n")
}
