#include "src/exchange/import.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "src/base/check.hpp"
#include "src/checkpoint/step_writer.hpp"
#include "src/exchange/elements.hpp"

namespace trireme::exchange {
namespace {

constexpr std::size_t max_listed = 20;

/// Returns whether a tensor has the shape of the map's, or more rows where these may be padding.
bool fits(const MappedTensor& wanted, const Shape& shape) {
  if (wanted.shape == shape) return true;
  Shape cut = shape;
  if (!wanted.padded || shape.rank() == 0 || shape[0] < wanted.shape[0]) return false;
  cut[0] = wanted.shape[0];
  return cut == wanted.shape;
}

}  // namespace

std::vector<std::size_t> match(const TensorMap& map, const TensorSource& source, const NameRules& rules) {
  const std::vector<ForeignTensor>& tensors = source.tensors();
  std::map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i < tensors.size(); ++i) by_name.emplace(tensors[i].name, i);
  std::set<std::size_t> used;
  std::vector<std::string> problems;
  const auto find = [&](const std::string& name) {
    auto found = by_name.find(name);
    if (found == by_name.end()) {
      for (const std::string& other : rules.other_names(name)) {
        if (found == by_name.end()) found = by_name.find(other);
      }
    }
    if (found != by_name.end()) used.insert(found->second);
    return found;
  };
  std::vector<std::size_t> result;
  for (const MappedTensor& wanted : map.tensors) {
    auto found = find(wanted.name);
    // Where the tensor itself is missing, one with the same content serves.
    for (const std::string& copy : wanted.copies) {
      const auto same = find(copy);
      if (found == by_name.end()) found = same;
    }
    if (found == by_name.end()) {
      problems.push_back(fmt::format("{} {} is missing", wanted.name, to_string(wanted.shape)));
      continue;
    }
    const ForeignTensor& tensor = tensors[found->second];
    if (!fits(wanted, tensor.shape)) {
      problems.push_back(
          fmt::format("{} is {} instead of {}", tensor.name, to_string(tensor.shape), to_string(wanted.shape)));
    }
    if (!is_floating(tensor.dtype)) {
      problems.push_back(
          fmt::format("{} has the type {}; weights are fp64, fp32, bf16 or fp16", tensor.name, name_of(tensor.dtype)));
    }
    result.push_back(found->second);
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (used.contains(i) || rules.is_ignored(tensors[i].name)) continue;
    problems.push_back(fmt::format("{} {} is no part of the model that the configuration describes", tensors[i].name,
                                   to_string(tensors[i].shape)));
  }
  if (problems.empty()) return result;
  const std::size_t count = problems.size();
  if (count > max_listed) problems.resize(max_listed);
  throw DataError("{} does not have the tensors of its model; {} differ{}:\n  {}", source.description(), count,
                  count > max_listed ? ", the first of them" : "", fmt::join(problems, "\n  "));
}

ParameterReader::ParameterReader(const TensorMap& map, TensorSource& source, std::vector<std::size_t> tensors)
    : map_(map), source_(source), tensors_(std::move(tensors)) {}

void ParameterReader::read_run(const MappedParameter& parameter, const RowRun& run, std::int64_t first,
                               std::int64_t count, DType dtype, std::byte* out) {
  const MappedTensor& mapped = map_.tensors[run.tensor];
  const std::size_t index = tensors_[run.tensor];
  const ForeignTensor& tensor = source_.tensors()[index];
  const auto element = static_cast<std::int64_t>(size_of(tensor.dtype));
  const std::int64_t columns = parameter.columns, step = run.foreign_step;
  const std::int64_t begin = run.foreign_first + (first - run.first) * step;
  const std::int64_t covered = (count - 1) * step + 1;  // rows of the tensor between the first and the last one
  raw_.resize(static_cast<std::size_t>(covered * columns * element));
  if (mapped.transposed) {
    const std::int64_t all = tensor.shape[1];
    if (covered == all) {
      source_.read(index, 0, raw_);
    } else {
      for (std::int64_t column = 0; column < columns; ++column) {
        source_.read(index, column * all + begin,
                     std::span(raw_).subspan(static_cast<std::size_t>(column * covered * element),
                                             static_cast<std::size_t>(covered * element)));
      }
    }
    return convert_transposed(raw_.data(), tensor.dtype, columns, covered, out, dtype);
  }
  source_.read(index, begin * columns, raw_);
  if (step == 1) return convert(raw_.data(), tensor.dtype, out, dtype, count * columns);
  const auto row_bytes = static_cast<std::int64_t>(size_of(dtype)) * columns;
  for (std::int64_t row = 0; row < count; ++row) {
    convert(raw_.data() + row * step * columns * element, tensor.dtype, out + row * row_bytes, dtype, columns);
  }
}

void ParameterReader::read(const MappedParameter& parameter, std::int64_t first, std::int64_t count, DType dtype,
                           std::vector<std::byte>& out) {
  const auto row_bytes = static_cast<std::int64_t>(size_of(dtype)) * parameter.columns;
  out.resize(static_cast<std::size_t>(count * row_bytes));
  for (const RowRun& run : parameter.runs) {
    const std::int64_t begin = std::max(first, run.first);
    const std::int64_t end = std::min(first + count, run.first + run.count);
    if (begin < end) read_run(parameter, run, begin, end - begin, dtype, out.data() + (begin - first) * row_bytes);
  }
  const std::int64_t begin = std::max(first, parameter.rows() - parameter.added_rows);
  if (begin < first + count) {
    fill(out.data() + (begin - first) * row_bytes, dtype, (first + count - begin) * parameter.columns,
         parameter.added_value);
  }
}

void import_weights(TensorSource& source, const TensorMap& map, const std::vector<std::size_t>& tensors, DType master,
                    checkpoint::Store& store, Communicator& world, const checkpoint::RunDescription& description,
                    const ImportSizes& sizes) {
  const auto element = static_cast<std::int64_t>(size_of(master));
  std::int64_t total = 0;
  for (const MappedParameter& parameter : map.parameters) total += parameter.shape.numel() * element;
  // Every rank writes as many files as the others, all of about one size.
  const std::int64_t rank_files = (total / world.size() + sizes.file_bytes) / sizes.file_bytes;
  const std::int64_t file_bytes = total / (world.size() * rank_files) + 1;
  const std::int64_t first_file = world.rank() * rank_files;

  ParameterReader reader(map, source, tensors);
  std::vector<std::byte> buffer;  // rows of the present slice
  std::vector<checkpoint::ShardContent> shards(static_cast<std::size_t>(rank_files));
  for (std::int64_t i = 0; i < rank_files; ++i) {
    shards[static_cast<std::size_t>(i)].file_name = checkpoint::shard_name(static_cast<int>(first_file + i));
  }
  std::int64_t done = 0;
  for (const MappedParameter& parameter : map.parameters) {
    const std::int64_t row_bytes = parameter.columns * element;
    const std::int64_t step = std::max<std::int64_t>(1, sizes.slice_bytes / row_bytes);
    for (std::int64_t first = 0; first < parameter.rows(); first += step) {
      const std::int64_t count = std::min(step, parameter.rows() - first);
      const std::int64_t file = done / file_bytes - first_file;
      done += count * row_bytes;
      if (file < 0 || file >= rank_files) continue;
      checkpoint::Piece piece;
      piece.tensor = "model/" + parameter.name;
      piece.dtype = master;
      piece.shape = parameter.shape;
      piece.slice = {Box::whole(parameter.shape), first * parameter.columns, count * parameter.columns};
      shards[static_cast<std::size_t>(file)].add(piece, [&, first, count] {
        reader.read(parameter, first, count, master, buffer);
        return ConstTensorView(buffer.data(), master, {count * parameter.columns});
      });
    }
  }
  if (world.rank() == 0) shards.front().add_blobs(description.blobs);
  checkpoint::write_step(store, world, description, shards);
}

}  // namespace trireme::exchange
