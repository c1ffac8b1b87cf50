//! `creel run --start` and `--preload`: one run by way of a sandbox that was made ahead.

use super::paths::{text, usage};
use super::refusal::Refusal;
use super::run_args::RunArgs;
use crate::executor::service::{is_module, once::Start, usual_modules};
use crate::text::quoted;

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen {
    pub start: Start,
    /// `None`: what is usual for the image.
    preload: Option<Vec<String>>,
}

impl Chosen {
    /// The modules that are imported ahead, for a run in this image.
    pub fn preload(&self, image: &str) -> Vec<String> {
        match &self.preload {
            Some(preload) => preload.clone(),
            None if self.start == Start::Cold => Vec::new(),
            None => usual_modules(image),
        }
    }
}

/// Reads both options; `None` without `--start`.
///
/// # Errors
/// A value that is none, or `--preload` where nothing is imported ahead.
pub fn chosen(args: &RunArgs) -> Result<Option<Chosen>, Refusal> {
    let start = match args.start.as_deref().map(|v| text("--start", v)).transpose()? {
        None => None,
        Some("cold") => Some(Start::Cold),
        Some("warm") => Some(Start::Warm),
        Some("zygote") => Some(Start::Zygote),
        Some(other) => {
            return Err(usage(format!("--start: {}; accepted: cold, warm, zygote", quoted(other))));
        }
    };
    let mut preload = Vec::new();
    for value in &args.preload {
        for module in text("--preload", value)?.split(',').filter(|m| !m.is_empty()) {
            if !is_module(module) {
                return Err(usage(format!("--preload: {} is no name of a Python module", quoted(module))));
            }
            preload.push(module.to_owned());
        }
    }
    if !args.preload.is_empty() && !matches!(start, Some(Start::Warm | Start::Zygote)) {
        return Err(usage("--preload goes with --start warm or --start zygote"));
    }
    // An empty list given is "nothing", not "what is usual".
    let preload = (!args.preload.is_empty()).then_some(preload);
    Ok(start.map(|start| Chosen { start, preload }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(start: &str, preload: &[&str]) -> Result<Option<Chosen>, Refusal> {
        let start = (!start.is_empty()).then(|| start.into());
        chosen(&RunArgs { start, preload: preload.iter().map(Into::into).collect(), ..RunArgs::default() })
    }

    #[test]
    fn what_is_imported_depends_on_the_image_unless_it_is_said() {
        assert_eq!(of("", &[]).unwrap(), None);
        let usual = of("warm", &[]).unwrap().unwrap();
        let modules = ["numpy", "pandas", "matplotlib.pyplot", "openpyxl", "docx"];
        assert_eq!(usual.preload("data"), modules);
        assert_eq!(usual.preload("office:latest"), modules);
        assert!(usual.preload("host").is_empty() && usual.preload("./data").is_empty());
        let said = of("zygote", &["json,csv", "数据"]).unwrap().unwrap();
        assert_eq!(said.preload("data"), ["json", "csv", "数据"]);
        assert!(of("warm", &[""]).unwrap().unwrap().preload("data").is_empty());
        assert!(of("cold", &[]).unwrap().unwrap().preload("data").is_empty());
    }

    #[test]
    fn nonsense_is_refused() {
        for (start, preload, word) in [
            ("hot", &[][..], "accepted: cold"),
            ("", &["json"], "--preload goes with"),
            ("cold", &["json"], "--preload goes with"),
            ("warm", &["os; rm"], "no name of a Python module"),
        ] {
            let refusal = of(start, preload).unwrap_err();
            assert_eq!(refusal.code, "usage.invalid");
            assert!(refusal.message.contains(word), "{refusal}");
        }
    }
}
