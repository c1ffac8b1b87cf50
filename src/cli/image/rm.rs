//! `creel image rm`.

use std::ffi::OsString;

use super::super::paths::text;
use super::super::refusal::Refusal;
use super::{size, store_with};

pub(super) fn main(names: &[OsString]) -> Result<String, Refusal> {
    let names = names.iter().map(|n| text("NAME", n)).collect::<Result<Vec<_>, _>>()?;
    let store = store_with(names.first().copied().unwrap_or_default())?;
    let collected = store.remove(&names)?;
    let lines: String = collected.names.iter().map(|n| format!("removed {n}\n")).collect();
    let default = match collected.default_gone {
        true => "creel run takes host from now on, unless another is chosen: creel image default NAME\n",
        false => "",
    };
    Ok(format!("{lines}{default}freed {}\n", size(collected.bytes)))
}
