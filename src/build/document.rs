//! The configuration and the manifest of a built image (OCI image specification 1.1).

use std::collections::HashMap;

use oci_spec::image::{
    Arch, ConfigBuilder, Descriptor, HistoryBuilder, ImageConfigurationBuilder, ImageManifestBuilder,
    MediaType, Os, RootFsBuilder, SCHEMA_VERSION,
};

use super::cache::Layer;
use super::recipe::Config;
use crate::image::oci::Digest;
use crate::image::store::PACKAGES_ANNOTATION;

/// A layer and what made it.
pub struct Made {
    pub layer: Layer,
    pub by: String,
}

type Result<T> = std::result::Result<T, oci_spec::OciSpecError>;

/// The configuration, as JSON.
pub fn configuration(config: &Config, layers: &[Made], epoch: u64, path_env: &str) -> Result<Vec<u8>> {
    let created = rfc3339(epoch);
    let mut env = config.env.clone();
    env.entry("PATH".to_owned()).or_insert_with(|| path_env.to_owned());
    let mut run = ConfigBuilder::default()
        .user("10001:10001")
        .env(env.iter().map(|(k, v)| format!("{k}={v}")).collect::<Vec<_>>())
        .working_dir(config.cwd.clone().unwrap_or_else(|| "/work".into()));
    if let Some(cmd) = &config.cmd {
        run = run.cmd(cmd.clone());
    }
    let history = layers
        .iter()
        .map(|m| HistoryBuilder::default().created(created.clone()).created_by(m.by.clone()).build())
        .collect::<Result<Vec<_>>>()?;
    let rootfs = RootFsBuilder::default()
        .typ("layers")
        .diff_ids(layers.iter().map(|m| m.layer.diff_id.to_string()).collect::<Vec<_>>())
        .build()?;
    let whole = ImageConfigurationBuilder::default()
        .created(created)
        .architecture(Arch::default())
        .os(Os::Linux)
        .config(run.build()?)
        .rootfs(rootfs)
        .history(history)
        .build()?;
    Ok(serde_json::to_vec(&whole)?)
}

/// The manifest, as JSON. `packages`: the text of `installed-packages.json`.
pub fn manifest(
    config: &[u8],
    layers: &[Made],
    description: &str,
    packages: Option<&str>,
) -> Result<Vec<u8>> {
    let descriptor = |kind, digest: Digest, size| -> Result<Descriptor> {
        Ok(Descriptor::new(kind, size, digest.to_string().parse::<oci_spec::image::Digest>()?))
    };
    let mut annotations =
        HashMap::from([("org.opencontainers.image.description".to_owned(), description.to_owned())]);
    if let Some(packages) = packages {
        annotations.insert(PACKAGES_ANNOTATION.to_owned(), packages.to_owned());
    }
    let layers = layers
        .iter()
        .map(|m| descriptor(MediaType::ImageLayerGzip, m.layer.layer, m.layer.size))
        .collect::<Result<Vec<_>>>()?;
    let manifest = ImageManifestBuilder::default()
        .schema_version(SCHEMA_VERSION)
        .media_type(MediaType::ImageManifest)
        .config(descriptor(MediaType::ImageConfig, Digest::of(config), config.len() as u64)?)
        .layers(layers)
        .annotations(annotations)
        .build()?;
    // Through a value: its maps are sorted, so that the same image has the same digest.
    Ok(serde_json::to_vec(&serde_json::to_value(&manifest)?)?)
}

/// `2025-06-15T15:06:40Z`: days to a date as in Howard Hinnant's `civil_from_days`.
fn rfc3339(epoch: u64) -> String {
    let (days, rest) = (epoch / 86_400, epoch % 86_400);
    let z = days + 719_468;
    let era = z / 146_097;
    let doe = z % 146_097;
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_750_000_000), "2025-06-15T15:06:40Z");
        assert_eq!(rfc3339(4_102_444_799), "2099-12-31T23:59:59Z");
    }
}
