//! Ways to install without a release.

use super::file;
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs `install.sh` on the archives of a folder. Returns its output, and whether it succeeded.
fn install(releases: &Path, to: &Path) -> (String, bool) {
    let mut command = Command::new("sh");
    command.arg(root().join("install.sh")).env("VERSION", "v9").env("TO", to);
    command.env("RELEASES", format!("file://{}", releases.display()));
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (String::from_utf8(said).unwrap(), output.status.success())
}

#[test]
fn a_release_is_installed_whose_checksum_is_right_and_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let system = if cfg!(target_os = "macos") { "apple-darwin" } else { "unknown-linux-gnu" };
    let name = format!("fgrpo-v9-{}-{system}", std::env::consts::ARCH);
    let (releases, to) = (folder.path().join("releases"), folder.path().join("bin"));
    let at = releases.join("download/v9");
    std::fs::create_dir_all(at.join(&name)).unwrap();
    file(&at.join(&name), "fgrpo", "#!/bin/sh\necho fgrpo 9\n");
    let archive = at.join(format!("{name}.tar.gz"));
    let tar = Command::new("tar").arg("-C").arg(&at).arg("-czf").arg(&archive).arg(&name).status().unwrap();
    assert!(tar.success());
    let (said, done) = install(&releases, &to);
    assert!(!done && said.contains(&format!("{name}.tar.gz.sha256 could not be downloaded")), "{said}");
    let sum =
        |digest: &str| file(&at, &format!("{name}.tar.gz.sha256"), &format!("{digest}  {name}.tar.gz\n"));
    sum(&"0".repeat(64));
    let (said, done) = install(&releases, &to);
    assert!(!done && said.contains("another checksum") && !to.exists(), "{said}");
    let bytes = Sha256::digest(std::fs::read(&archive).unwrap());
    sum(&bytes.iter().map(|b| format!("{b:02x}")).collect::<String>());
    for _ in 0..2 {
        let (said, done) = install(&releases, &to);
        assert!(done && said.contains("bin/fgrpo, fgrpo 9"), "{said}");
    }
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 1);
}

/// How the pages install the Python package now, and after it is published.
const PACKAGE: &str = "./crates/py";
const UNPUBLISHED: &str = "fgrpo";

#[test]
fn every_page_installs_the_package_in_the_way_that_works() {
    let listed = |folder: &str| std::fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap().path());
    let pages = ["", "docs", "notebooks", "crates/py"].into_iter().flat_map(listed);
    let pages = pages.filter(|p| p.extension().is_some_and(|e| e == "md" || e == "ipynb"));
    let mut found = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).unwrap();
        for (begin, _) in text.match_indices("pip install ").chain(text.match_indices("tool install ")) {
            let line = text[begin..].lines().next().unwrap();
            let command = line.split(['`', '#']).next().unwrap();
            for package in command.split_whitespace() {
                assert_ne!(package, UNPUBLISHED, "{}: {line}", page.display());
                found += usize::from(package == PACKAGE);
            }
        }
    }
    assert!(found >= 8, "{found}");
}

#[test]
fn a_release_publishes_every_crate_after_those_that_it_needs() {
    let workflow = std::fs::read_to_string(root().join(".github/workflows/release.yml")).unwrap();
    let list = workflow.split("for crate in ").nth(1).unwrap().split(';').next().unwrap();
    let list: Vec<&str> = list.split(' ').collect();
    for entry in std::fs::read_dir(root().join("crates")).unwrap() {
        let manifest = std::fs::read_to_string(entry.unwrap().path().join("Cargo.toml")).unwrap();
        let manifest: toml::Table = manifest.parse().unwrap();
        let name = manifest["package"]["name"].as_str().unwrap();
        // The wheel goes to PyPI, the module of the page isn't published.
        if manifest["package"].get("publish").is_some_and(|publish| publish.as_bool() == Some(false)) {
            continue;
        }
        let place = |name: &str| list.iter().position(|listed| *listed == name);
        let own = place(name).unwrap_or_else(|| panic!("{name} is not published: {list:?}"));
        for needed in manifest["dependencies"].as_table().unwrap().keys().filter(|n| n.starts_with("fgrpo")) {
            assert!(place(needed) < Some(own), "{name} is published before {needed}");
        }
    }
}
