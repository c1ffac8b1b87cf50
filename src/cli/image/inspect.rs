//! `creel image inspect`.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;

use serde_json::{Value, json};

use super::super::paths::text;
use super::super::refusal::Refusal;
use super::store_with;
use crate::image::store::{MAX_DOCUMENT, Store, StoreError};

pub(super) fn main(name: &OsStr) -> Result<String, Refusal> {
    let name = text("NAME", name)?;
    let store = store_with(name)?;
    let about = about(&store, name)?;
    let text =
        serde_json::to_string_pretty(&about).map_err(|e| Refusal::new("host.output", e.to_string()))?;
    Ok(text + "\n")
}

fn about(store: &Store, name: &str) -> Result<Value, StoreError> {
    let (digest, _) = store.meaning(name)?;
    let all = store.names()?;
    let names: Vec<&str> = all.iter().filter(|n| n.digest == digest).map(|n| n.name()).collect();
    let facts = store.facts(&digest)?;
    let sharing = store.sharing()?;
    let layers = facts.layers.iter().map(|layer| {
        let mut value = json!(layer);
        let others = sharing.get(&layer.diff_id).into_iter().flatten();
        value["sharedWith"] = others.filter(|n| !names.contains(&n.as_str())).cloned().collect();
        value
    });
    let layers: Vec<Value> = layers.collect();
    let default = store.default_name()?;
    Ok(json!({
        "names": names,
        "default": default.is_some_and(|d| names.contains(&d.as_str())),
        "manifest": digest,
        "config": facts.config,
        "created": facts.created,
        "size": facts.size,
        "layers": layers,
        "configuration": store.blob(&facts.config)?.and_then(document),
        "bundle": store.bundle(&digest),
        "notes": facts.notes,
        "installedPackages": File::open(store.bundle(&digest).join("installed-packages.json")).ok().and_then(document),
    }))
}

fn document(file: File) -> Option<Value> {
    let mut bytes = Vec::new();
    file.take(MAX_DOCUMENT).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}
