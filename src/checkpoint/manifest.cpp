#include "src/checkpoint/manifest.hpp"

#include <algorithm>
#include <set>
#include <sstream>

#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::checkpoint {
namespace {

bool is_file_name(std::string_view name) {
  const bool plain = std::ranges::none_of(
      name, [](unsigned char character) { return character == '/' || character < 0x20 || character == 0x7f; });
  return plain && !name.empty() && name.size() <= 255 && name != "." && name != "..";
}

bool is_digest(std::string_view text) {
  return text.size() == 32 && std::ranges::all_of(text, [](char character) {
           return (character >= '0' && character <= '9') || (character >= 'a' && character <= 'f');
         });
}

void validate_files(const Manifest& manifest) {
  std::set<std::string_view> names;
  for (const FileEntry& file : manifest.files) {
    TRIREME_CHECK(is_file_name(file.name), CheckpointError,
                  "the manifest names a file '{}', which is not the name of a file in its own folder: refused",
                  shortened(file.name));
    TRIREME_CHECK(names.insert(file.name).second, CheckpointError, "the manifest names the file {} twice", file.name);
    TRIREME_CHECK(file.size_bytes >= 0 && is_digest(file.digest), CheckpointError,
                  "the manifest gives no proper size and digest for the file {}", file.name);
  }
}

void validate_piece(const Manifest& manifest, const Piece& piece) {
  TRIREME_CHECK(is_plain_name(piece.tensor, max_tensor_name_bytes) && is_plain_name(piece.dataset, 240),
                CheckpointError,
                "the manifest names a tensor '{}' (dataset '{}'): names are 1 to 200 letters, digits and . _ - /",
                shortened(piece.tensor), shortened(piece.dataset));
  const std::string problem = slice_problem(piece.shape, piece.slice);
  TRIREME_CHECK(problem.empty(), CheckpointError, "the tensor {} in the manifest: {}", piece.tensor, problem);
  TRIREME_CHECK(piece.file < manifest.files.size() && is_digest(piece.digest), CheckpointError,
                "the manifest gives no proper file and digest for the tensor {}", piece.tensor);
  const FileEntry& file = manifest.files[piece.file];
  TRIREME_CHECK(piece.offset_bytes >= 0 && piece.size_bytes() <= file.size_bytes &&
                    piece.offset_bytes <= file.size_bytes - piece.size_bytes(),
                CheckpointError, "the manifest has the tensor {} beyond the end of the file {}", piece.tensor,
                file.name);
}

/// Reads a line of `to_text`. Returns false at the end.
bool read_piece(std::istream& stream, Piece& piece) {
  std::string dtype;
  std::size_t rank = 0;
  if (!(stream >> piece.tensor >> dtype >> rank)) return false;
  piece.dtype = dtype_from_name(dtype);
  for (Shape* numbers : {&piece.shape, &piece.slice.box.offset, &piece.slice.box.extent}) {
    std::vector<std::int64_t> values(rank);
    for (std::int64_t& value : values) stream >> value;
    *numbers = Shape(values);
  }
  stream >> piece.slice.flat_begin >> piece.slice.count >> piece.file >> piece.dataset >> piece.offset_bytes >>
      piece.digest;
  for (std::string* text_or_dash : {&piece.dataset, &piece.digest}) {
    if (*text_or_dash == "-") text_or_dash->clear();
  }
  return true;
}

}  // namespace

void validate_tensors(const std::vector<Piece>& pieces) {
  std::map<std::string_view, std::vector<const Piece*>> tensors;
  for (const Piece& piece : pieces) tensors[piece.tensor].push_back(&piece);
  for (const auto& [name, of_tensor] : tensors) {
    const Piece& first = *of_tensor.front();
    std::vector<TensorSlice> slices;
    for (const Piece* piece : of_tensor) {
      TRIREME_CHECK(piece->dtype == first.dtype && piece->shape == first.shape, CheckpointError,
                    "the tensor {} is {} {} in one piece and {} {} in another", name, name_of(first.dtype),
                    to_string(first.shape), name_of(piece->dtype), to_string(piece->shape));
      slices.push_back(piece->slice);
    }
    const std::string problem = coverage_problem(first.shape, slices);
    TRIREME_CHECK(problem.empty(), CheckpointError, "the tensor {} is not stored exactly once: {}", name, problem);
  }
}

void validate(const Manifest& manifest) {
  TRIREME_CHECK(manifest.step >= 0, CheckpointError, "the manifest is of step {}", manifest.step);
  validate_files(manifest);
  for (const std::vector<Piece>* list : {&manifest.blobs, &manifest.pieces}) {
    for (const Piece& piece : *list) validate_piece(manifest, piece);
    validate_tensors(*list);
  }
  for (const Piece& blob : manifest.blobs) {
    TRIREME_CHECK(blob.dtype == DType::uint8 && blob.shape.rank() == 1 && blob.slice.count == blob.shape[0],
                  CheckpointError, "the blob {} in the manifest is not one piece of bytes", blob.tensor);
  }
}

std::string to_text(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) {
    text += fmt::format("{} {} {}", piece.tensor, name_of(piece.dtype), piece.shape.rank());
    for (const Shape* numbers : {&piece.shape, &piece.slice.box.offset, &piece.slice.box.extent}) {
      for (const std::int64_t number : numbers->extents()) text += fmt::format(" {}", number);
    }
    text += fmt::format(" {} {} {} {} {} {}\n", piece.slice.flat_begin, piece.slice.count, piece.file,
                        piece.dataset.empty() ? "-" : piece.dataset, piece.offset_bytes,
                        piece.digest.empty() ? "-" : piece.digest);
  }
  return text;
}

std::vector<Piece> pieces_from_text(const std::string& text) {
  std::vector<Piece> pieces;
  std::istringstream stream(text);
  for (Piece piece; read_piece(stream, piece);) pieces.push_back(piece);
  return pieces;
}

std::string to_text(const Manifest& manifest) {
  std::string text =
      fmt::format("{} {} {} {}\n", manifest.step, manifest.files.size(), manifest.blobs.size(), manifest.pieces.size());
  for (const FileEntry& file : manifest.files) {
    text += fmt::format("{} {} {}\n", file.name, file.size_bytes, file.digest);
  }
  text += to_text(manifest.blobs) + to_text(manifest.pieces);
  for (const auto& [name, value] : manifest.attributes.texts()) {
    text += fmt::format("{} {} {}\n", name, value.size(), value);
  }
  return text;
}

Manifest manifest_from_text(const std::string& text) {
  Manifest manifest;
  std::istringstream stream(text);
  std::size_t files = 0, blobs = 0, pieces = 0;
  stream >> manifest.step >> files >> blobs >> pieces;
  manifest.files.resize(files);
  for (FileEntry& file : manifest.files) stream >> file.name >> file.size_bytes >> file.digest;
  manifest.blobs.resize(blobs);
  for (Piece& blob : manifest.blobs) read_piece(stream, blob);
  manifest.pieces.resize(pieces);
  for (Piece& piece : manifest.pieces) read_piece(stream, piece);
  std::string name;
  for (std::size_t size = 0; stream >> name >> size;) {
    std::string value(size, '\0');
    stream.ignore(1);  // the blank before it
    stream.read(value.data(), static_cast<std::streamsize>(size));
    manifest.attributes.put(name, value);
  }
  return manifest;
}

}  // namespace trireme::checkpoint
