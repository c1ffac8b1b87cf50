//! Which manifest of a multi-platform index is this machine's.

use oci_spec::image::{Descriptor, Platform};

/// How deep indexes may lie in indexes, the outermost counted.
pub const MAX_INDEX_DEPTH: usize = 4;
/// How many platforms a message names.
const NAMED: usize = 12;

/// An operating system and a processor architecture, in the words of the image specification (those of Go).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub os: &'static str,
    pub architecture: &'static str,
    /// The variant that is taken besides entries without one; `None`: any.
    pub variant: Option<&'static str>,
}

/// Why an index has nothing for this machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the image has nothing for {wanted}: {}", list(.there))]
pub struct NoPlatform {
    /// `linux/amd64`
    pub wanted: String,
    /// The platforms there are, escaped, each once.
    pub there: Vec<String>,
}

impl Target {
    /// This machine.
    pub fn here() -> Target {
        let (architecture, variant) = match std::env::consts::ARCH {
            "x86_64" => ("amd64", None),
            "x86" => ("386", None),
            "aarch64" => ("arm64", Some("v8")),
            "arm" => ("arm", None),
            "riscv64" => ("riscv64", None),
            "powerpc64" if cfg!(target_endian = "little") => ("ppc64le", None),
            "powerpc64" => ("ppc64", None),
            "s390x" => ("s390x", None),
            "loongarch64" => ("loong64", None),
            other => (other, None),
        };
        Target { os: "linux", architecture, variant }
    }

    fn takes(&self, platform: &Platform) -> bool {
        let variant = platform.variant().as_deref().unwrap_or_default();
        let variant_fits = match (self.architecture, self.variant) {
            // amd64 has variants too (v2, v3 …): the higher ones need a processor that this machine may not have.
            ("amd64", _) => matches!(variant, "" | "v1"),
            (_, Some(own)) => variant.is_empty() || variant == own,
            (_, None) => true,
        };
        platform.os().to_string() == self.os
            && platform.architecture().to_string() == self.architecture
            && variant_fits
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)
    }
}

/// The entries of an index that may hold `target`'s manifest, in the order in which to look: first those that say so (one without
/// a variant before one with it), then those that say nothing of a platform (a nested index, an image of one platform only). Entries of
/// attestations (`unknown/unknown`, BuildKit's provenance and SBOM) are never among them.
///
/// # Errors
/// [`NoPlatform`] when there is none.
pub fn choose_platform<'a>(
    manifests: &'a [Descriptor],
    target: &Target,
) -> Result<Vec<&'a Descriptor>, NoPlatform> {
    let rank = |entry: &Descriptor| match entry.platform() {
        _ if is_attestation(entry) => None,
        Some(platform) if !target.takes(platform) => None,
        Some(platform) if platform.variant().is_none() => Some(0),
        Some(_) => Some(1),
        None => Some(2),
    };
    let mut fitting: Vec<_> = manifests.iter().filter_map(|m| rank(m).map(|r| (r, m))).collect();
    // Stable: equals stay in the order of the index.
    fitting.sort_by_key(|(rank, _)| *rank);
    if fitting.is_empty() {
        return Err(NoPlatform { wanted: target.to_string(), there: platforms(manifests) });
    }
    Ok(fitting.into_iter().map(|(_, m)| m).collect())
}

/// The platforms that an index names, each once, escaped.
pub fn platforms(manifests: &[Descriptor]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for platform in manifests.iter().filter(|m| !is_attestation(m)).filter_map(|m| m.platform().as_ref()) {
        let mut name = format!("{}/{}", platform.os(), platform.architecture());
        if let Some(variant) = platform.variant() {
            name = format!("{name}/{variant}");
        }
        let name: String = name.escape_debug().take(60).collect();
        if !names.contains(&name) {
            names.push(name);
        }
        if names.len() > NAMED {
            break;
        }
    }
    names
}

fn is_attestation(entry: &Descriptor) -> bool {
    let unknown = |p: &Platform| p.os().to_string() == "unknown" || p.architecture().to_string() == "unknown";
    let referrer =
        |a: &std::collections::HashMap<String, String>| a.contains_key("vnd.docker.reference.type");
    entry.platform().as_ref().is_some_and(unknown) || entry.annotations().as_ref().is_some_and(referrer)
}

fn list(there: &[String]) -> String {
    match there {
        [] => "its index names no platform".to_owned(),
        few if few.len() <= NAMED => format!("there are {}", few.join(", ")),
        many => format!("there are {} and more", many[..NAMED].join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::oci::Digest;

    fn index(entries: &[&str]) -> Vec<Descriptor> {
        entries
            .iter()
            .enumerate()
            .map(|(n, platform)| {
                let digest = Digest::of(&[n as u8]);
                let mut json = serde_json::json!({
                    "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": n,
                });
                let mut parts = platform.split('/');
                if let (Some(os), Some(architecture)) = (parts.next(), parts.next()) {
                    json["platform"] = serde_json::json!({ "os": os, "architecture": architecture });
                    if let Some(variant) = parts.next() {
                        json["platform"]["variant"] = variant.into();
                    }
                }
                serde_json::from_value(json).unwrap()
            })
            .collect()
    }

    fn chosen(entries: &[&str], architecture: &'static str, variant: Option<&'static str>) -> Vec<u64> {
        let target = Target { os: "linux", architecture, variant };
        choose_platform(&index(entries), &target)
            .map(|found| found.iter().map(|d| d.size()).collect())
            .unwrap_or_default()
    }

    #[test]
    fn the_machines_own() {
        let all = ["linux/arm/v7", "linux/amd64", "unknown/unknown", "linux/arm64/v8", "windows/amd64"];
        assert_eq!(chosen(&all, "amd64", None), [1]);
        assert_eq!(chosen(&all, "arm64", Some("v8")), [3]);
        assert_eq!(chosen(&all, "riscv64", None), [0; 0]);
        assert_eq!(chosen(&["linux/arm64"], "arm64", Some("v8")), [0]);
        assert_eq!(chosen(&["linux/arm64/v9"], "arm64", Some("v8")), [0; 0]);
        // A processor of level 1 can't run the first.
        assert_eq!(chosen(&["linux/amd64/v3", "linux/amd64/v1", "linux/amd64"], "amd64", None), [2, 1]);
        assert_eq!(chosen(&["linux/amd64", "linux/amd64"], "amd64", None), [0, 1]);
    }

    #[test]
    fn entries_without_a_platform_come_last() {
        assert_eq!(chosen(&["", "linux/amd64", ""], "amd64", None), [1, 0, 2]);
    }

    #[test]
    fn an_attestation_is_no_image() {
        let mut entries = index(&["linux/amd64"]);
        let annotations = [("vnd.docker.reference.type".to_owned(), "attestation-manifest".to_owned())];
        entries[0].set_annotations(Some(annotations.into()));
        let target = Target { os: "linux", architecture: "amd64", variant: None };
        assert!(choose_platform(&entries, &target).is_err());
        assert_eq!(chosen(&["unknown/unknown", "linux/unknown"], "amd64", None), [0; 0]);
    }

    #[test]
    fn the_error_names_what_there_is() {
        let target = Target { os: "linux", architecture: "amd64", variant: None };
        let error = |entries: &[&str]| choose_platform(&index(entries), &target).unwrap_err().to_string();
        let all = ["linux/arm64/v8", "windows/amd64", "linux/arm64/v8", "unknown/unknown"];
        assert_eq!(
            error(&all),
            "the image has nothing for linux/amd64: there are linux/arm64/v8, windows/amd64"
        );
        assert!(error(&[]).ends_with("its index names no platform"));
        let hostile = error(&["\u{1b}[2J/\u{202e}x"]);
        assert!(!hostile.contains(['\u{1b}', '\u{202e}']), "{hostile}");
        let many: Vec<_> = (0..100).map(|n| format!("linux/a{n}")).collect();
        let many = error(&many.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(many.ends_with("a11 and more"), "{many}");
    }

    #[test]
    fn this_machine_is_known() {
        let here = Target::here();
        assert_eq!(here.os, "linux");
        assert!(!["x86_64", "aarch64"].contains(&here.architecture));
    }
}
