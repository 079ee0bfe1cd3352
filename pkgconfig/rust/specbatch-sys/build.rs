//! Finds the library, in this order:
//!
//! - `SPECBATCH_DIR`, the folder in which it is, or the one that it was installed into;
//! - pkg-config, the program `PKG_CONFIG` or else `pkg-config`;
//! - where the linker looks anyway.
//!
//! With `SPECBATCH_STATIC=1` the archive is linked. `DEP_SPECBATCH_LIB` tells the build scripts of
//! crates that depend on this one directly where the library is, if that is known.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// What `pkg-config --libs` prints of the library, word by word.
fn pkg_config(is_static: bool) -> Option<Vec<String>> {
    let program = env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into());
    let mut command = Command::new(program);
    command.args(["--libs", "specbatch >= 0.2"]);
    if is_static {
        command.arg("--static");
    }
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.split_whitespace().map(str::to_string).collect())
}

/// The folder of the library in or under `dir`.
fn library_folder(dir: PathBuf) -> PathBuf {
    let has = |folder: &PathBuf| {
        folder.join("libspecbatch.so").exists() || folder.join("libspecbatch.a").exists()
    };
    let under = dir.join("lib");
    if !has(&dir) && has(&under) {
        return under;
    }
    dir
}

fn search(folder: &str) {
    println!("cargo:rustc-link-search=native={folder}");
    println!("cargo:lib={folder}");
}

fn main() {
    for name in ["SPECBATCH_DIR", "SPECBATCH_STATIC", "PKG_CONFIG", "PKG_CONFIG_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    let is_static = env::var_os("SPECBATCH_STATIC").map_or(false, |value| value == "1");
    let kind = if is_static { "static" } else { "dylib" };

    // What else the archive needs: yajl and the C library's own parts, or what pkg-config says.
    let mut libraries: Vec<_> = ["yajl", "m", "pthread", "dl"].map(str::to_string).into();
    if let Some(dir) = env::var_os("SPECBATCH_DIR") {
        search(&library_folder(dir.into()).to_string_lossy());
    } else if let Some(words) = pkg_config(is_static) {
        words.iter().filter_map(|word| word.strip_prefix("-L")).for_each(search);
        let named = words.iter().filter_map(|word| word.strip_prefix("-l"));
        libraries = named.filter(|name| *name != "specbatch").map(str::to_string).collect();
    } else {
        println!(
            "cargo:warning=neither SPECBATCH_DIR nor pkg-config says where libspecbatch is, so it \
             has to be where the linker looks"
        );
    }
    println!("cargo:rustc-link-lib={kind}=specbatch");
    if is_static {
        libraries.iter().for_each(|name| println!("cargo:rustc-link-lib={name}"));
    }
}
