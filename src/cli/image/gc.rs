//! `creel image gc`.

use super::super::refusal::Refusal;
use super::{existing, size};

pub(super) fn main() -> Result<String, Refusal> {
    let Some(store) = existing()? else {
        return Ok(format!("freed {}\n", size(0)));
    };
    let collected = store.gc()?;
    let mut text = format!("freed {}\n", size(collected.bytes));
    for digest in collected.in_use {
        text += &format!("kept {}: a run uses it, run gc again when it is over\n", digest.short());
    }
    Ok(text)
}
