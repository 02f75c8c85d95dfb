#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::io {

/// Value of a curve at a step.
struct Scalar {
  std::string tag;
  double value = 0;  ///< stored as fp32
};

/// TensorBoard's message `Event` (tensorboard/compat/proto/event.proto) restricted to what curves need. Fields:
/// wall_time = 1, step = 2, file_version = 3, summary = 5. A summary's value = 1 has tag = 1 and simple_value = 2.
struct ScalarEvent {
  double wall_time_s = 0;  ///< since 1970
  std::int64_t step = 0;
  std::vector<Scalar> scalars;
};

/// Text at a step, for the plugin "text": value = 1 has tag = 1, a tensor = 8 of one string (TensorProto: dtype = 1 is
/// 7, string_val = 8) and metadata = 9 (SummaryMetadata: plugin_data = 1 with plugin_name = 1, data_class = 4 is 2).
struct TextEvent {
  double wall_time_s = 0;
  std::int64_t step = 0;
  std::string tag;
  std::string text;  ///< Markdown
};

/// Returns the first event of every file, which states the format version.
std::string version_event(double wall_time_s);

/// Returns the event in protobuf's encoding.
std::string encode(const ScalarEvent& event);
std::string encode(const TextEvent& event);

/// Reads an event back; of a text only the tag. Missing and malformed fields are left out.
ScalarEvent decode_event(std::string_view bytes);

// TFRecord, the framing of TensorBoard's files (tensorflow.org/tutorials/load_data/tfrecord), little-endian: uint64
// size, uint32 masked CRC-32C of the size, data, uint32 masked CRC-32C of the data. A CRC is masked by a rotation to
// the right by 15 bits and the addition of 0xa282ead8.

/// Returns `data` as a record.
std::string tfrecord(std::string_view data);

/// Returns the data of the record that begins at `offset` of a file's content, and sets `offset` to its end. Empty if
/// no complete record with valid checksums begins there.
std::optional<std::string_view> next_tfrecord(std::string_view content, std::size_t& offset);

}  // namespace trireme::io
