//! Compiled system-call filters, one for each text of a profile.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::executor::request::SeccompChoice;
use crate::executor::run::{Stop, compiled};

/// Texts that are remembered; a daemon has a handful of profiles.
const MOST: usize = 64;

/// The filters of a daemon.
#[derive(Debug, Default)]
pub struct Filters(Mutex<HashMap<String, Arc<Vec<u8>>>>);

impl Filters {
    /// What the order to go carries for this profile.
    ///
    /// # Errors
    /// `profile.seccomp`: it can't become a filter.
    pub fn get(&self, seccomp: &SeccompChoice) -> Result<Arc<Vec<u8>>, Stop> {
        // Nothing panics with it half changed.
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(filter) = known.get(&seccomp.json) {
            return Ok(Arc::clone(filter));
        }
        let filter = Arc::new(compiled(seccomp)?);
        if known.len() == MOST {
            known.clear();
        }
        known.insert(seccomp.json.clone(), Arc::clone(&filter));
        Ok(filter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_text_is_compiled_once_and_a_bad_one_never() {
        let filters = Filters::default();
        let default = crate::profile::load("default").unwrap().seccomp;
        let strict = crate::profile::load("strict").unwrap().seccomp;
        let first = filters.get(&default).unwrap();
        assert!(Arc::ptr_eq(&first, &filters.get(&default).unwrap()));
        assert_ne!(*first, *filters.get(&strict).unwrap());
        let bad = SeccompChoice { name: "坏".into(), json: "{".into() };
        assert_eq!(filters.get(&bad).unwrap_err().error.code, "profile.seccomp");
    }
}
