//! Writes the launchers: a struct for each kernel, whose fields are the kernel's parameters.
//!
//! Kernels whose names differ only in number types and sizes share a launcher if their parameters have the same names: `add_f32` and `add_bf16` are
//! `Add`. A pointer whose number type differs between them is of the type `Values`, and selects the kernel. If no pointer differs, the number type is a
//! variant. Sizes are variants too: `attention_bf16_64` is `Attention` with `Variant::Size64`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::signatures::{Kind, Parameter, Signature};

/// Kernels that share a launcher.
struct Family<'a> {
    /// Name of the kernels without number types and size.
    name: String,
    /// Parameters of the kernel that has most.
    parameters: Vec<Parameter>,
    /// Variants and their signatures.
    kernels: Vec<(String, &'a Signature)>,
}

/// Splits a kernel's name into the family's name and the variant, which is empty if the name has no size.
fn parts(name: &str) -> (String, String) {
    let is_variant = |word: &str| word == "mma" || word.bytes().all(|c| c.is_ascii_digit());
    let words = name.split('_').filter(|word| !["f32", "bf16"].contains(word));
    let (variant, family): (Vec<_>, Vec<_>) = words.partition(|word| is_variant(word));
    let variant = match variant[..] {
        [] => String::new(),
        [size] => format!("Size{size}"),
        [_, size] => format!("Mma{size}"),
        _ => panic!("{name} has more than one size"),
    };
    (family.join("_"), variant)
}

/// Whether a kernel takes the parameters, except for sizes that it is compiled for.
fn takes(parameters: &[Parameter], signature: &Signature) -> bool {
    let named = |parameters: &[Parameter]| -> Vec<String> {
        parameters.iter().map(|parameter| parameter.name.clone()).filter(|name| name != "size").collect()
    };
    named(parameters)
        == named(&signature.parameters).into_iter().filter(|name| !name.is_empty()).collect::<Vec<_>>()
}

fn families(signatures: &[Signature]) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for signature in signatures {
        let (name, variant) = parts(&signature.name);
        let joins = |family: &&mut Family<'_>| family.name == name && takes(&family.parameters, signature);
        match families.iter_mut().find(joins) {
            Some(family) => {
                if family.parameters.len() < signature.parameters.len() {
                    family.parameters.clone_from(&signature.parameters);
                }
                family.kernels.push((variant, signature));
            }
            None => families.push(Family {
                name,
                parameters: signature.parameters.clone(),
                kernels: vec![(variant, signature)],
            }),
        }
    }
    for family in &mut families {
        let same = |(variant, kernel): &(String, &Signature)| (variant.clone(), kernel.parameters.clone());
        if family.kernels.len() > 1
            && family.kernels.iter().all(|kernel| same(kernel) == same(&family.kernels[0]))
        {
            family.kernels.iter_mut().for_each(|(variant, kernel)| {
                let word = kernel.name.rsplit('_').next().expect("a word");
                *variant = camel(word);
            });
        }
    }
    // Kernels of the same name with other parameters keep their number types in their names.
    let names: Vec<String> = families.iter().map(|family| family.name.clone()).collect();
    for family in &mut families {
        if names.iter().filter(|name| **name == family.name).count() > 1 {
            family.name.clone_from(&family.kernels[0].1.name);
        }
    }
    families
}

fn camel(name: &str) -> String {
    let upper = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(upper).collect()
}

impl Family<'_> {
    fn has_variants(&self) -> bool {
        self.kernels.iter().any(|(variant, _)| *variant != self.kernels[0].0)
    }

    /// Whether the kernels differ in a pointer's number type.
    fn differs(&self, name: &str) -> bool {
        let kinds = self.kernels.iter().flat_map(|(_, kernel)| &kernel.parameters);
        let kinds: Vec<Kind> = kinds.filter(|other| other.name == name).map(|other| other.kind).collect();
        let differs = kinds.iter().any(|kind| *kind != kinds[0]);
        let numbers = [Kind::Pointer("f32"), Kind::Pointer("Bf16")];
        assert!(
            !differs || kinds.iter().all(|kind| numbers.contains(kind)),
            "{}: {name} has several types",
            self.name
        );
        differs
    }

    fn field(&self, Parameter { name, kind }: &Parameter) -> String {
        match kind {
            Kind::U32 => "usize".to_owned(),
            Kind::U64 => "u64".to_owned(),
            Kind::F32 => "f32".to_owned(),
            Kind::Pointer(_) if self.differs(name) => "Values".to_owned(),
            Kind::Pointer(element) => format!("Pointer<{element}>"),
        }
    }

    /// Writes the code that returns a kernel and its arguments if the kernel takes the number types.
    fn write_kernel(
        &self,
        (variant, Signature { name, parameters }): &(String, &Signature),
        to: &mut String,
    ) {
        let mut conditions: Vec<String> = Vec::new();
        if self.has_variants() {
            conditions.push(format!("variant == Variant::{}", general(variant)));
        }
        for Parameter { name, kind } in parameters.iter().filter(|parameter| self.differs(&parameter.name)) {
            let test = if *kind == Kind::Pointer("f32") { "is_f32" } else { "is_bf16" };
            conditions.push(format!("{name}.{test}()"));
        }
        let argument = |parameter: &Parameter| {
            let name = if parameter.name.is_empty() { "size" } else { &parameter.name };
            format!("{name}.into()")
        };
        let arguments: Vec<String> = parameters.iter().map(argument).collect();
        let value = format!("(\"{name}\", vec![{}])", arguments.join(", "));
        if conditions.is_empty() {
            writeln!(to, "        {value}").expect("a string");
        } else {
            writeln!(to, "        if {} {{ return {value}; }}", conditions.join(" && ")).expect("a string");
        }
    }

    fn write(&self, to: &mut String) {
        let kernels: Vec<String> =
            self.kernels.iter().map(|(_, kernel)| format!("`{}`", kernel.name)).collect();
        let (name, mut fields) = (camel(&self.name), String::new());
        let mut names: Vec<&str> = self.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        if self.has_variants() {
            fields.push_str(
                "    /// Size or number type that the kernel is compiled for.\n    pub variant: Variant,\n",
            );
            names.push("variant");
        }
        for parameter in &self.parameters {
            let field = self.field(parameter);
            writeln!(fields, "    /// Parameter `{0}` of the kernel.\n    pub {0}: {field},", parameter.name)
                .expect("a string");
        }
        let mut body = format!("        let {name} {{ {} }} = *self;\n", names.join(", "));
        self.kernels.iter().for_each(|kernel| self.write_kernel(kernel, &mut body));
        if self.has_variants() || names.iter().any(|name| self.differs(name)) {
            body.push_str("        panic!(\"no kernel for {self:?}\")\n");
        }
        write!(
            to,
            "\n/// Launches {}.\n#[derive(Debug, Clone, Copy)]\npub struct {name} {{\n{fields}}}\n\nimpl Kernel for {name} {{\n    \
             fn call(&self) -> (&'static str, Vec<Argument>) {{\n{body}    }}\n}}\n",
            kernels.join(", ")
        )
        .expect("a string");
    }
}

fn general(variant: &str) -> &str {
    if variant.is_empty() { "General" } else { variant }
}

/// Returns the source of all launchers.
pub(crate) fn launchers(signatures: &[Signature]) -> String {
    let families = families(signatures);
    let variants = families.iter().filter(|family| family.has_variants()).flat_map(|family| &family.kernels);
    let variants: BTreeSet<&str> = variants.map(|(variant, _)| general(variant)).collect();
    let mut source = String::from(
        "/// Size or number type that a kernel is compiled for. `General` kernels take any size.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq)]\n#[allow(missing_docs)]\npub enum Variant {\n",
    );
    variants.iter().for_each(|variant| writeln!(source, "    {variant},").expect("a string"));
    source.push_str("}\n");
    families.iter().for_each(|family| family.write(&mut source));
    let names: Vec<String> = families.iter().map(|family| format!("\"{}\"", camel(&family.name))).collect();
    write!(
        source,
        "\n/// Names of all launchers.\npub const LAUNCHERS: &[&str] = &[{}];\n",
        names.join(", ")
    )
    .expect("a string");
    source
}
