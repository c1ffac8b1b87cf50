//! `creel image ls`.

use std::fmt::Write as _;

use super::super::refusal::Refusal;
use super::{existing, size};
use crate::image::store::Listed;

pub(super) fn main(json: bool) -> Result<String, Refusal> {
    let listed = match existing()? {
        Some(store) => store.list()?,
        None => Vec::new(),
    };
    if json {
        let text = serde_json::to_string(&listed).map_err(|e| Refusal::new("host.output", e.to_string()))?;
        return Ok(text + "\n");
    }
    Ok(lines(&listed))
}

fn lines(listed: &[Listed]) -> String {
    let width = listed.iter().map(|i| i.name.len()).max().unwrap_or(0).max(4);
    let mut text =
        format!("{:width$}  {:12}  {:10}  {:>9}  {:>6}\n", "NAME", "DIGEST", "CREATED", "SIZE", "LAYERS");
    for image in listed {
        let created: String = image.created.as_deref().unwrap_or("-").chars().take(10).collect();
        let mark = if image.default { "  default" } else { "" };
        // Writing to a String can't fail.
        let _ = writeln!(
            text,
            "{:width$}  {:12}  {created:10}  {:>9}  {:>6}{mark}",
            image.name,
            image.digest.short(),
            size(image.size),
            image.layers
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::oci::Digest;

    #[test]
    fn columns() {
        let image = |name: &str, created: Option<&str>, default| Listed {
            name: name.into(),
            digest: Digest::of(b""),
            created: created.map(str::to_owned),
            size: 145_300_000,
            layers: 2,
            default,
        };
        let text = lines(&[
            image("data:v1", Some("2026-11-30T18:22:47Z"), true),
            image("registry.example:5000/a/minimal:latest", None, false),
        ]);
        assert_eq!(
            text,
            "NAME                                    DIGEST        CREATED          SIZE  LAYERS\n\
             data:v1                                 e3b0c44298fc  2026-11-30   145.3 MB       2  default\n\
             registry.example:5000/a/minimal:latest  e3b0c44298fc  -            145.3 MB       2\n"
        );
        assert_eq!(lines(&[]).lines().count(), 1);
    }
}
