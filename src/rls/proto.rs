//! Files, messages and fields as reflection tells of them, from their names and numbers.

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
};

pub(super) fn file(
    name: &str,
    package: &str,
    imports: &[&str],
    messages: Vec<DescriptorProto>,
) -> FileDescriptorProto {
    FileDescriptorProto {
        name: text(name),
        package: text(package),
        dependency: imports.iter().map(|&import| import.to_owned()).collect(),
        message_type: messages,
        syntax: text("proto3"),
        ..FileDescriptorProto::default()
    }
}

pub(super) fn message(name: &str, field: Vec<FieldDescriptorProto>) -> DescriptorProto {
    DescriptorProto { name: text(name), field, ..DescriptorProto::default() }
}

pub(super) fn enumeration(name: &str, values: &[(&str, i32)]) -> EnumDescriptorProto {
    let value = |(name, number): &(&str, i32)| EnumValueDescriptorProto {
        name: text(name),
        number: Some(*number),
        options: None,
    };
    EnumDescriptorProto {
        name: text(name),
        value: values.iter().map(value).collect(),
        ..EnumDescriptorProto::default()
    }
}

pub(super) fn one(name: &str, number: i32, kind: Type) -> FieldDescriptorProto {
    FieldDescriptorProto {
        name: text(name),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        ..FieldDescriptorProto::default()
    }
}

/// A field of a message's or an enumeration's type.
pub(super) fn of_type(name: &str, number: i32, kind: Type, type_name: &str) -> FieldDescriptorProto {
    FieldDescriptorProto { type_name: text(type_name), ..one(name, number, kind) }
}

/// Any number of messages of a type.
pub(super) fn repeated(name: &str, number: i32, type_name: &str) -> FieldDescriptorProto {
    FieldDescriptorProto {
        label: Some(Label::Repeated.into()),
        ..of_type(name, number, Type::Message, type_name)
    }
}

pub(super) fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}
