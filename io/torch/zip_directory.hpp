#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

namespace trireme::io {

/// Returns whether bytes begin as a zip archive.
bool is_zip(std::span<const std::byte> bytes);

/// Files in a zip archive whose entries are stored, not compressed, as `torch.save` writes it; also zip64. Each is a
/// part of `bytes`. `name` is that of the archive, for messages. DataError where the archive is damaged, or its entries
/// are compressed, encrypted, or there twice.
std::map<std::string, std::span<const std::byte>> stored_entries(std::span<const std::byte> bytes,
                                                                 const std::string& name);

}  // namespace trireme::io
