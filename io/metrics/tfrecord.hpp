#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::io {

// TFRecord, the framing of TensorBoard's files (tensorflow.org/tutorials/load_data/tfrecord), little-endian: uint64
// size, uint32 masked CRC-32C of the size, data, uint32 masked CRC-32C of the data. A CRC is masked by a rotation to
// the right by 15 bits and the addition of 0xa282ead8.

/// Returns `data` as a record.
std::string tfrecord(std::string_view data);

/// Returns the data of the record that begins at `offset` of a file's content, and sets `offset` to its end. Empty if
/// no complete record with valid checksums begins there.
std::optional<std::string_view> next_tfrecord(std::string_view content, std::size_t& offset);

}  // namespace trireme::io
