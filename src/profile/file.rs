//! The text of a profile file, and its errors as `file:line: what`.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

use super::ProfileError;
use crate::limits::Limits;
use crate::text::{one_line, quoted};
use crate::units::{self, UnitError};

/// A file as written: what it leaves out is `None`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProfileFile {
    #[serde(default)]
    pub limits: LimitsFile,
    pub seccomp: Option<String>,
    /// Parsed to be checked: only one mode is built.
    #[serde(default, rename = "network")]
    _network: NetworkFile,
    #[serde(default)]
    pub env: BTreeMap<EnvName, EnvValue>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsFile {
    timeout: Option<Value<Seconds>>,
    timeout_max: Option<Value<Seconds>>,
    memory: Option<Value<Memory>>,
    cpus: Option<Value<Cpus>>,
    pids: Option<Value<Count<{ units::PIDS_MAX }>>>,
    tmp: Option<Value<Tmpfs>>,
    shm: Option<Value<Tmpfs>>,
    run: Option<Value<Tmpfs>>,
    work: Option<Value<Tmpfs>>,
    work_files: Option<Value<Count<{ 1 << 32 }>>>,
    output: Option<Value<Size>>,
    output_files: Option<Value<Count<1_000_000>>>,
    output_depth: Option<Value<Count<256>>>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworkFile {
    #[serde(default, rename = "mode")]
    _mode: NetworkMode,
}

impl LimitsFile {
    /// The limits and the longest time-out, with `base` for what this file leaves out.
    pub fn over(&self, base: &LimitsFile, place: &str) -> Result<(Limits, Duration), ProfileError> {
        macro_rules! pick {
            ($key:ident) => {
                match (&self.$key, &base.$key) {
                    (Some(value), _) | (None, Some(value)) => value.0,
                    (None, None) => return Err(incomplete(stringify!($key))),
                }
            };
        }
        let (mut timeout, mut timeout_max) = (pick!(timeout), pick!(timeout_max));
        if timeout > timeout_max {
            // One of the two is inherited: it gives way to the one that is written.
            match (&self.timeout, &self.timeout_max) {
                (Some(_), Some(_)) => {
                    let (timeout, max) = (units::show_seconds(timeout), units::show_seconds(timeout_max));
                    let message = format!("timeout ({timeout} s) is above timeout_max ({max} s)");
                    return Err(ProfileError::Text { place: place.to_owned(), message });
                }
                (Some(_), None) => timeout_max = timeout,
                (None, _) => timeout = timeout_max,
            }
        }
        // The ranges of the types above keep both conversions from cutting anything.
        let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
        let limits = Limits {
            timeout,
            memory: pick!(memory),
            cpu_millis: pick!(cpus),
            pids: narrow(pick!(pids)),
            tmp: pick!(tmp),
            shm: pick!(shm),
            run: pick!(run),
            work: pick!(work),
            work_files: pick!(work_files),
            output: pick!(output),
            output_files: pick!(output_files),
            output_depth: narrow(pick!(output_depth)),
        };
        Ok((limits, timeout_max))
    }
}

/// The compiled-in default lacks a key: a fault of the build, which a unit test looks for.
pub(super) fn incomplete(key: &str) -> ProfileError {
    ProfileError::Text {
        place: "profiles/default.toml".to_owned(),
        message: format!("key {} is missing", quoted(key)),
    }
}

/// Parses one file; `place` is what errors call it.
pub(super) fn parse(text: &str, place: &str) -> Result<ProfileFile, ProfileError> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map(|span| span.start.min(text.len()));
        let line = start.map(|at| text.as_bytes()[..at].iter().filter(|b| **b == b'\n').count() + 1);
        let place = match line {
            Some(line) => format!("{}:{line}", one_line(place)),
            None => one_line(place),
        };
        let key = line.and_then(|line| text.lines().nth(line - 1)).and_then(key_of);
        ProfileError::Text { place, message: explain(error.message(), key) }
    })
}

/// `memory` of `memory = "5x"`.
fn key_of(line: &str) -> Option<&str> {
    let key = line.split_once('=')?.0.trim();
    (!key.is_empty()).then_some(key)
}

/// serde's words in ours, in one line.
fn explain(message: &str, key: Option<&str>) -> String {
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, expected "));
    if let Some((field, known)) = unknown {
        let known = known.trim_start_matches("one of ").replace('`', "");
        return format!("unknown key {}; known: {known}", quoted(field));
    }
    let message = one_line(message);
    match key {
        Some(key) => format!("{}: {message}", one_line(key)),
        None => message,
    }
}

/// How one kind of value is read from its text.
trait Unit {
    type Out;
    fn read(text: &str) -> Result<Self::Out, UnitError>;
}

macro_rules! unit {
    ($name:ident -> $out:ty, $read:expr) => {
        #[derive(Debug, Clone)]
        struct $name;
        impl Unit for $name {
            type Out = $out;
            fn read(text: &str) -> Result<$out, UnitError> {
                let read: fn(&str) -> Result<$out, UnitError> = $read;
                read(text)
            }
        }
    };
}
unit!(Seconds -> Duration, units::seconds);
unit!(Cpus -> u32, units::cpus);
unit!(Memory -> u64, |text| units::size(text, units::MEMORY_MIN));
unit!(Tmpfs -> u64, |text| units::size(text, units::TMPFS_MIN));
unit!(Size -> u64, |text| units::size(text, 1));

#[derive(Debug, Clone)]
struct Count<const MAX: u64>;
impl<const MAX: u64> Unit for Count<MAX> {
    type Out = u64;
    fn read(text: &str) -> Result<u64, UnitError> {
        units::count(text, MAX)
    }
}

/// A value written as a number or as text (`30`, `0.5`, `"512m"`).
struct Value<U: Unit>(U::Out);

impl<U: Unit> Clone for Value<U>
where
    U::Out: Clone,
{
    fn clone(&self) -> Self {
        Value(self.0.clone())
    }
}

impl<U: Unit> fmt::Debug for Value<U>
where
    U::Out: fmt::Debug,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de, U: Unit> Deserialize<'de> for Value<U> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsText;
        impl Visitor<'_> for AsText {
            type Value = String;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or text such as \"512m\"")
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<String, E> {
                Ok(number.to_string())
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<String, E> {
                Ok(number.to_string())
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<String, E> {
                Ok(text.to_owned())
            }
        }
        let text = deserializer.deserialize_any(AsText)?;
        U::read(&text).map(Value).map_err(de::Error::custom)
    }
}

/// The only mode of this version.
#[derive(Debug, Clone, Default)]
struct NetworkMode;

impl<'de> Deserialize<'de> for NetworkMode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "none" => Ok(NetworkMode),
            other => Err(de::Error::custom(format!(
                "{} is not in this version: allow-lists for the network aren't built yet; accepted: \"none\"",
                quoted(other)
            ))),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EnvName(pub String);

impl<'de> Deserialize<'de> for EnvName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        if is_env_name(&name) {
            Ok(EnvName(name))
        } else {
            Err(de::Error::custom(format!(
                "{} is no name for a variable; accepted: {ENV_NAME}",
                quoted(&name)
            )))
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct EnvValue(pub String);

impl<'de> Deserialize<'de> for EnvValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = String::deserialize(deserializer)?;
        if value.contains('\0') { Err(de::Error::custom("contains a NUL")) } else { Ok(EnvValue(value)) }
    }
}

/// What [`is_env_name`] takes, in words.
pub(crate) const ENV_NAME: &str = "text of any script without '=' or control characters";

/// Whether `name` can name an environment variable: what environ(7) can hold, so that names in any script work.
pub(crate) fn is_env_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(|c: char| c == '=' || c.is_control())
}
