//! The payload's environment, built from nothing: nothing of the caller's own environment gets in.

use std::collections::BTreeMap;

/// Puts the fixed environment, then the image's, then the profile's and caller's together; later ones win.
///
/// `path` is the PATH of the image; `cpu_millis` gives the number of threads that numeric libraries start, which would else be the
/// host's core count (a thread flood against a small quota).
pub fn build(
    path: &str,
    image: &[(String, String)],
    request: &BTreeMap<String, String>,
    cpu_millis: u32,
) -> Vec<(String, String)> {
    let threads = cpu_millis.div_ceil(1000).max(1).to_string();
    let fixed = [
        ("PATH", path),
        ("HOME", "/work"),
        ("TMPDIR", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("TZ", "UTC"),
        ("PYTHONUNBUFFERED", "1"),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("MPLCONFIGDIR", "/tmp/.matplotlib"),
        ("XDG_CACHE_HOME", "/tmp/.cache"),
        ("XDG_CONFIG_HOME", "/tmp/.config"),
        ("XDG_DATA_HOME", "/tmp/.local/share"),
        ("XDG_RUNTIME_DIR", "/run"),
        ("OMP_NUM_THREADS", &threads),
        ("OPENBLAS_NUM_THREADS", &threads),
        ("MKL_NUM_THREADS", &threads),
        ("NUMEXPR_NUM_THREADS", &threads),
    ];
    let mut all: BTreeMap<String, String> =
        fixed.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    all.extend(image.iter().cloned());
    all.extend(request.iter().map(|(k, v)| (k.clone(), v.clone())));
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_ones_win_and_threads_follow_the_quota() {
        let image = [("LANG".to_owned(), "zh_CN.UTF-8".to_owned()), ("X".to_owned(), "image".to_owned())];
        let request = BTreeMap::from([("X".to_owned(), "caller".to_owned())]);
        let env: BTreeMap<_, _> = build("/bin", &image, &request, 1500).into_iter().collect();
        assert_eq!(env["LANG"], "zh_CN.UTF-8");
        assert_eq!(env["X"], "caller");
        assert_eq!(env["OMP_NUM_THREADS"], "2");
        assert_eq!(env["PATH"], "/bin");
    }
}
