#pragma once

#include <cstdint>
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

/// Returns the first event of every file, which states the format version.
std::string version_event(double wall_time_s);

/// Returns the event in protobuf's encoding.
std::string encode(const ScalarEvent& event);

/// Reads an event back. Missing and malformed fields are left out.
ScalarEvent decode_event(std::string_view bytes);

}  // namespace trireme::io
