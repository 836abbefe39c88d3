//! Paths in `ensemble.yaml`, in which `~/` is the home directory as in a shell.

use std::path::{Path, PathBuf};

use serde::{Deserialize as _, Deserializer};

pub(super) fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Option<PathBuf>, D::Error> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty());
    let path = Option::<PathBuf>::deserialize(from)?;
    Ok(path.map(|path| in_home(path, home.as_ref().map(Path::new))))
}

fn in_home(path: PathBuf, home: Option<&Path>) -> PathBuf {
    match (path.strip_prefix("~"), home) {
        (Ok(rest), Some(home)) => home.join(rest),
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_is_the_home_directory() {
        let home = Some(Path::new("/h/u"));
        for (path, read) in
            [("~/src", "/h/u/src"), ("~", "/h/u/"), ("~x/src", "~x/src"), ("a/~", "a/~")]
        {
            assert_eq!(in_home(path.into(), home), Path::new(read), "{path}");
        }
        assert_eq!(in_home("~/src".into(), None), Path::new("~/src"));
    }
}
