#include "io/checkpoint/manifest_json.hpp"

#include <nlohmann/json.hpp>
#include <string_view>

#include "io/json/json_text.hpp"
#include "src/base/check.hpp"
#include "src/base/hash.hpp"

namespace trireme::io {
namespace {

using checkpoint::FileEntry;
using checkpoint::Manifest;
using checkpoint::Piece;
using nlohmann::json;

constexpr std::string_view format_name = "trireme checkpoint";
// The first line: these words around 32 digits of the digest of what follows.
constexpr std::string_view head = "{\"digest\": \"";
constexpr std::string_view tail = "\", \"manifest\":\n";
constexpr std::size_t digest_size = 32;
static_assert(manifest_head_bytes == head.size() + digest_size + tail.size());
constexpr int max_manifest_depth = 6;

json to_json(const Shape& shape) { return std::vector<std::int64_t>(shape.extents().begin(), shape.extents().end()); }

json to_json(const FileEntry& file) {
  return {{"name", file.name}, {"size_bytes", file.size_bytes}, {"digest", file.digest}};
}

json to_json(const Piece& piece) {
  return {{"tensor", piece.tensor},
          {"dtype", name_of(piece.dtype)},
          {"shape", to_json(piece.shape)},
          {"offset", to_json(piece.slice.box.offset)},
          {"extent", to_json(piece.slice.box.extent)},
          {"flat_begin", piece.slice.flat_begin},
          {"count", piece.slice.count},
          {"file", piece.file},
          {"dataset", piece.dataset},
          {"offset_bytes", piece.offset_bytes},
          {"digest", piece.digest}};
}

/// Writes one element per line.
template <class Element>
std::string list_text(const std::vector<Element>& list) {
  std::string text = "[";
  for (const Element& element : list) text += (&element == list.data() ? "\n" : ",\n") + to_json(element).dump();
  return text + "]";
}

const json& member(const json& object, const char* key) {
  const auto found = object.find(key);
  TRIREME_CHECK(found != object.end(), CheckpointError, "the key '{}' is missing", key);
  return *found;
}

std::int64_t integer(const json& value) {
  TRIREME_CHECK(value.is_number_integer() &&
                    !(value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX}),
                CheckpointError, "{} is not an integer of 64 bits", value.dump());
  return value.get<std::int64_t>();
}

Shape shape_from(const json& value) {
  TRIREME_CHECK(value.is_array() && value.size() <= Shape::max_rank, CheckpointError, "{} is not a shape",
                value.dump().substr(0, 100));
  std::vector<std::int64_t> extents;
  for (const json& extent : value) extents.push_back(integer(extent));
  return Shape(extents);
}

FileEntry file_from(const json& value) {
  return {member(value, "name").get<std::string>(), integer(member(value, "size_bytes")),
          member(value, "digest").get<std::string>()};
}

Piece piece_from(const json& value) {
  Piece piece;
  piece.tensor = member(value, "tensor").get<std::string>();
  piece.dtype = dtype_from_name(member(value, "dtype").get<std::string>());
  piece.shape = shape_from(member(value, "shape"));
  piece.slice.box = {shape_from(member(value, "offset")), shape_from(member(value, "extent"))};
  piece.slice.flat_begin = integer(member(value, "flat_begin"));
  piece.slice.count = integer(member(value, "count"));
  piece.file = static_cast<std::size_t>(integer(member(value, "file")));
  piece.dataset = member(value, "dataset").get<std::string>();
  piece.offset_bytes = integer(member(value, "offset_bytes"));
  piece.digest = member(value, "digest").get<std::string>();
  return piece;
}

/// Throws if values nest deeper than a manifest's do: the parser needs memory for every level. (A parser callback would
/// also catch this, but makes parsing quadratic in the length of lists.)
void check_depth(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char character = text[i];
    if (character == '\\') {
      ++i;
    } else if (character == '"') {
      in_string = !in_string;
    } else if (!in_string && (character == '{' || character == '[')) {
      TRIREME_CHECK(++depth <= max_manifest_depth, CheckpointError, "it nests too deep");
    } else if (!in_string && (character == '}' || character == ']')) {
      --depth;
    }
  }
}

json parse(std::string_view body) {
  check_depth(body);
  if (body.ends_with("}\n")) body.remove_suffix(2);  // the brace that closes the first line's object
  return json::parse(body);
}

void read_body(const json& body, Manifest& manifest) {
  TRIREME_CHECK(member(body, "format") == format_name, CheckpointError, "its format is {}",
                member(body, "format").dump().substr(0, 100));
  const std::int64_t version = integer(member(body, "format_version"));
  TRIREME_CHECK(version >= 1 && version <= INT32_MAX, CheckpointError, "its format version is {}", version);
  manifest.format_version = static_cast<int>(version);
  if (version > Manifest::current_version) return;
  manifest.step = integer(member(body, "step"));
  for (const auto& [name, value] : member(body, "attributes").items()) {
    manifest.attributes.put(name, value.get<std::string>());
  }
  for (const json& file : member(body, "files")) manifest.files.push_back(file_from(file));
  for (const json& blob : member(body, "blobs")) manifest.blobs.push_back(piece_from(blob));
  for (const json& piece : member(body, "pieces")) manifest.pieces.push_back(piece_from(piece));
}

}  // namespace

std::string manifest_to_json(const Manifest& manifest) {
  try {
    const std::string body = fmt::format(
        "{{\"format\": \"{}\",\n\"format_version\": {},\n\"step\": {},\n\"attributes\": {},\n\"files\": {},\n"
        "\"blobs\": {},\n\"pieces\": {}}}}}\n",
        format_name, manifest.format_version, manifest.step, json(manifest.attributes.texts()).dump(2),
        list_text(manifest.files), list_text(manifest.blobs), list_text(manifest.pieces));
    return fmt::format("{}{}{}{}", head, digest(body.data(), body.size()), tail, body);
  } catch (const json::exception& error) {
    throw CheckpointError("the manifest cannot be written: {}", json_message(error.what()));
  }
}

Manifest manifest_from_json(const std::string& text, const std::string& path) {
  const std::size_t body_begin = manifest_head_bytes;
  const std::string_view view = text;
  TRIREME_CHECK(text.size() > body_begin && text.starts_with(head) &&
                    view.substr(head.size() + digest_size).starts_with(tail) &&
                    view.substr(head.size(), digest_size) == digest(text.data() + body_begin, text.size() - body_begin),
                CheckpointError, "{} is damaged, cut short, or not a valid manifest", path);
  Manifest manifest;
  manifest.digest = text.substr(head.size(), digest_size);
  manifest.attributes.set_source(path);
  try {
    read_body(parse(view.substr(body_begin)), manifest);
  } catch (const json::exception& error) {
    throw CheckpointError("{} is not a valid manifest of a checkpoint: {}", path, json_message(error.what()));
  } catch (const Error& error) {
    throw CheckpointError("{} is not a valid manifest of a checkpoint: {}", path, error.what());
  }
  return manifest;
}

}  // namespace trireme::io
