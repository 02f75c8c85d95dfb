#include "src/exchange/import.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <span>
#include <utility>

#include "src/base/check.hpp"
#include "src/base/hash.hpp"
#include "src/checkpoint/step_writer.hpp"
#include "src/exchange/elements.hpp"
#include "src/exchange/read_ahead.hpp"
#include "src/model/initialisation.hpp"

namespace trireme::exchange {
namespace {

constexpr std::size_t max_listed = 20;

/// Returns whether a tensor has the wanted shape, or more rows if these may be padding.
bool fits(const MappedTensor& wanted, const Shape& shape) {
  if (wanted.shape == shape) return true;
  Shape cut = shape;
  if (!wanted.padded || shape.rank() == 0 || shape[0] < wanted.shape[0]) return false;
  cut[0] = wanted.shape[0];
  return cut == wanted.shape;
}

/// Calls `visit` with each run that has rows of a slice, and with those rows; for a slice of columns, with all rows.
template <class Visit>
void for_each_part(const ParameterSlice& slice, const Visit& visit) {
  for (const RowRun& run : slice.parameter->runs) {
    ParameterSlice part = slice;
    if (!slice.of_columns) {
      part.first = std::max(slice.first, run.first);
      part.count = std::min(slice.first + slice.count, run.first + run.count) - part.first;
    }
    if (part.count > 0) visit(run, part);
  }
}

}  // namespace

TensorFinder::TensorFinder(const TensorSource& source, const NameRules& rules) : rules_(rules) {
  for (std::size_t i = 0; i < source.tensors().size(); ++i) by_name_.emplace(source.tensors()[i].name, i);
}

std::optional<std::size_t> TensorFinder::find(const std::string& name) const {
  auto found = by_name_.find(name);
  if (found == by_name_.end()) {
    for (const std::string& other : rules_.other_names(name)) {
      if (found == by_name_.end()) found = by_name_.find(other);
    }
  }
  return found == by_name_.end() ? std::nullopt : std::optional(found->second);
}

MatchedTensors match(const TensorMap& map, const TensorSource& source, const NameRules& rules) {
  const std::vector<ForeignTensor>& tensors = source.tensors();
  const TensorFinder finder(source, rules);
  std::set<std::size_t> used;
  std::vector<std::string> problems;
  MatchedTensors result;
  for (const MappedTensor& wanted : map.tensors) {
    std::vector<std::size_t>& found = result.emplace_back();
    const auto add = [&](const std::string& name) {
      const std::optional<std::size_t> index = finder.find(name);
      if (!index) return;
      found.push_back(*index);
      used.insert(*index);
      const ForeignTensor& tensor = tensors[*index];
      if (!fits(wanted, tensor.shape)) {
        problems.push_back(
            fmt::format("{} is {} instead of {}", tensor.name, to_string(tensor.shape), to_string(wanted.shape)));
      }
      if (!is_floating(tensor.dtype)) {
        problems.push_back(fmt::format("{} has the type {}; weights are fp64, fp32, bf16 or fp16", tensor.name,
                                       name_of(tensor.dtype)));
      }
    };
    add(wanted.name);
    for (const std::string& copy : wanted.copies) add(copy);  // replaces a missing one
    if (found.empty()) problems.push_back(fmt::format("{} {} is missing", wanted.name, to_string(wanted.shape)));
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (used.contains(i) || rules.is_ignored(tensors[i].name)) continue;
    problems.push_back(fmt::format("{} {} is not part of the model that the configuration describes", tensors[i].name,
                                   to_string(tensors[i].shape)));
  }
  if (problems.empty()) return result;
  const std::size_t count = problems.size();
  if (count > max_listed) problems.resize(max_listed);
  throw DataError("{} does not have the tensors of its model: {} differences{}:\n  {}", source.description(), count,
                  count > max_listed ? ", beginning with" : "", fmt::join(problems, "\n  "));
}

ParameterReader::ParameterReader(const TensorMap& map, TensorSource& source, MatchedTensors tensors)
    : map_(map), source_(source), tensors_(std::move(tensors)) {}

std::vector<ParameterSlice> ParameterReader::slices_of(const MappedParameter& parameter, DType dtype,
                                                       std::int64_t slice_bytes) const {
  const bool of_columns = !parameter.runs.empty() && map_.tensors[parameter.runs.front().tensor].transposed;
  const std::int64_t all = of_columns ? parameter.columns : parameter.rows();
  const std::int64_t bytes = parameter.shape.numel() / all * static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t step = std::max<std::int64_t>(1, slice_bytes / bytes);
  std::vector<ParameterSlice> slices;
  for (std::int64_t first = 0; first < all; first += step) {
    slices.push_back({&parameter, of_columns, first, std::min(step, all - first)});
  }
  return slices;
}

/// `part` has rows of the run, or columns.
ParameterReader::StoredRows ParameterReader::stored_rows(const RowRun& run, const ParameterSlice& part) const {
  const std::size_t tensor = tensors_[run.tensor].front();
  if (part.of_columns) return {tensor, part.first, part.count, run.count};
  return {tensor, run.foreign_first + (part.first - run.first) * run.foreign_step,
          (part.count - 1) * run.foreign_step + 1, part.parameter->columns};
}

void ParameterReader::compare(const StoredRows& rows, std::size_t copy) {
  const ForeignTensor &one = source_.tensors()[rows.tensor], &other = source_.tensors()[copy];
  const std::int64_t elements = rows.count * rows.columns;
  const auto in_fp64 = [&](const std::vector<std::byte>& from, DType dtype) {
    std::vector<std::byte> to(static_cast<std::size_t>(elements) * size_of(DType::fp64));
    convert(from.data(), dtype, to.data(), DType::fp64, elements);
    return to;
  };
  copy_.resize(static_cast<std::size_t>(elements) * size_of(other.dtype));
  source_.read(copy, rows.first * rows.columns, copy_);
  const bool is_same =
      one.dtype == other.dtype ? copy_ == raw_ : in_fp64(copy_, other.dtype) == in_fp64(raw_, one.dtype);
  TRIREME_CHECK(is_same, DataError,
                "{} and {} of {} have different elements, but are one tensor of the model that the configuration "
                "describes{}",
                one.name, other.name, source_.description(),
                other.name == "lm_head.weight"
                    ? ". Where its class allows two, set tie_word_embeddings to false in config.json"
                    : "");
}

void ParameterReader::read_run(const RowRun& run, const ParameterSlice& part, DType dtype, std::byte* out) {
  const StoredRows rows = stored_rows(run, part);
  const ForeignTensor& tensor = source_.tensors()[rows.tensor];
  const DType stored = tensor.dtype;
  const std::int64_t row_bytes = rows.columns * static_cast<std::int64_t>(size_of(stored));
  raw_.resize(static_cast<std::size_t>(rows.count * row_bytes));
  source_.read(rows.tensor, rows.first * rows.columns, raw_);
  for (const std::size_t copy : std::span(tensors_[run.tensor]).subspan(1)) compare(rows, copy);
  std::int64_t lost = 0;
  if (part.of_columns) {
    lost = convert_transposed(raw_.data(), stored, rows.count, rows.columns, out, dtype, rows.count);
  } else if (run.foreign_step == 1) {
    lost = convert(raw_.data(), stored, out, dtype, rows.count * rows.columns);
  } else {
    const std::int64_t out_bytes = rows.columns * static_cast<std::int64_t>(size_of(dtype));
    for (std::int64_t row = 0; row < part.count; ++row) {
      lost +=
          convert(raw_.data() + row * run.foreign_step * row_bytes, stored, out + row * out_bytes, dtype, rows.columns);
    }
  }
  require_finite(lost, tensor.name, dtype);
}

std::int64_t ParameterReader::prefetch(const ParameterSlice& slice) {
  std::int64_t size_bytes = 0;
  for_each_part(slice, [&](const RowRun& run, const ParameterSlice& part) {
    const StoredRows rows = stored_rows(run, part);
    const std::int64_t elements = rows.count * rows.columns;
    source_.prefetch(rows.tensor, rows.first * rows.columns, elements);
    size_bytes += elements * static_cast<std::int64_t>(size_of(source_.tensors()[rows.tensor].dtype));
  });
  return size_bytes;
}

void ParameterReader::read(const ParameterSlice& slice, DType dtype, std::vector<std::byte>& out) {
  const MappedParameter& parameter = *slice.parameter;
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t row_bytes = (slice.of_columns ? parameter.rows() : parameter.columns) * element;
  out.resize(static_cast<std::size_t>(slice.count * row_bytes));
  for_each_part(slice, [&](const RowRun& run, const ParameterSlice& part) {
    read_run(run, part, dtype, out.data() + (part.first - slice.first) * row_bytes);
  });
  const std::int64_t begin = std::max(slice.first, parameter.rows() - parameter.added_rows);
  if (!slice.of_columns && begin < slice.first + slice.count) {
    std::byte* const added = out.data() + (begin - slice.first) * row_bytes;
    const std::int64_t count = (slice.first + slice.count - begin) * parameter.columns;
    if (!parameter.is_initial) return fill(added, dtype, count, parameter.added_value);
    for (std::int64_t i = 0; i < count; ++i) {
      const double value =
          model::initial_value(parameter.name, parameter.role, begin * parameter.columns + i, model::Initialisation{});
      fill(added + i * element, dtype, 1, value);
    }
  }
}

void ParameterReader::read(const MappedParameter& parameter, DType dtype, std::vector<std::byte>& out) {
  const std::int64_t all_bytes = parameter.shape.numel() * static_cast<std::int64_t>(size_of(dtype));
  read(slices_of(parameter, dtype, all_bytes).front(), dtype, out);
}

void import_weights(TensorSource& source, const TensorMap& map, const MatchedTensors& tensors, DType master,
                    checkpoint::Store& store, Communicator& world, const checkpoint::RunDescription& description,
                    const std::string& source_digest, const ImportSizes& sizes) {
  const auto element = static_cast<std::int64_t>(size_of(master));
  std::int64_t total = 0;
  for (const MappedParameter& parameter : map.parameters) total += parameter.shape.numel() * element;
  // Every rank writes the same number of files, all of about the same size.
  const std::int64_t rank_files = (total / world.size() + sizes.file_bytes) / sizes.file_bytes;
  const std::int64_t file_bytes = total / (world.size() * rank_files) + 1;
  const std::int64_t first_file = world.rank() * rank_files;

  ParameterReader reader(map, source, tensors);
  std::vector<std::byte> buffer;       // elements of the current slice
  std::vector<ParameterSlice> slices;  // slices of this rank
  std::optional<ReadAhead> ahead;
  std::vector<checkpoint::ShardContent> shards(static_cast<std::size_t>(rank_files));
  for (std::int64_t i = 0; i < rank_files; ++i) {
    shards[static_cast<std::size_t>(i)].file_name = checkpoint::shard_name(static_cast<int>(first_file + i));
  }
  std::int64_t done = 0;
  for (const MappedParameter& parameter : map.parameters) {
    for (const ParameterSlice& slice : reader.slices_of(parameter, master, sizes.slice_bytes)) {
      checkpoint::Piece piece;
      piece.tensor = "model/" + parameter.name;
      piece.dtype = master;
      piece.shape = parameter.shape;
      piece.slice.box = Box::whole(parameter.shape);
      if (slice.of_columns) {
        const int last = parameter.shape.rank() - 1;
        piece.slice.box.offset[last] = slice.first;
        piece.slice.box.extent[last] = slice.count;
        piece.slice.count = piece.slice.box.numel();
      } else {
        piece.slice.flat_begin = slice.first * parameter.columns;
        piece.slice.count = slice.count * parameter.columns;
      }
      const std::int64_t file = done / file_bytes - first_file;
      done += piece.size_bytes();
      if (file < 0 || file >= rank_files) continue;
      shards[static_cast<std::size_t>(file)].add(piece, [&, index = slices.size(), count = piece.slice.count] {
        if (!ahead) ahead.emplace(slices.size(), sizes.slice_bytes);
        ahead->advance(index, [&](std::size_t next) { return reader.prefetch(slices[next]); });
        reader.read(slices[index], master, buffer);
        return ConstTensorView(buffer.data(), master, {count});
      });
      slices.push_back(slice);
    }
  }
  if (world.rank() == 0) shards.front().add_blobs(description.blobs);
  std::string origin;
  if (!source_digest.empty()) {
    std::string text = fmt::format("{} {} {} {} {}", source_digest, name_of(master), world.size(), sizes.slice_bytes,
                                   sizes.file_bytes);
    for (const auto& [name, value] : description.attributes.texts()) text += fmt::format("\n{} {}", name, value);
    for (const auto& [name, bytes] : description.blobs) {
      text += fmt::format("\n{} {}", name, digest(bytes.data(), bytes.size()));
    }
    origin = digest(text.data(), text.size());
  }
  checkpoint::write_step(store, world, description, shards, origin);
}

}  // namespace trireme::exchange
