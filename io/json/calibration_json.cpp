#include "io/json/calibration_json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"
#include "io/posix/regular_file.hpp"
#include "src/base/check.hpp"
#include "src/base/shortened.hpp"
#include "src/base/split.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;
using plan::Calibration;

const json& member(const json& object, const char* name, const std::string& where) {
  const auto found = object.find(name);
  TRIREME_CHECK(found != object.end(), DataError, "{}: there is no \"{}\"", where, name);
  return *found;
}

[[noreturn]] void refuse(const json& value, const char* name, const std::string& wanted, const std::string& where) {
  throw DataError("{}: \"{}\" is {}: it must be {}", where, name, shortened(value.dump()), wanted);
}

std::string text_of(const json& object, const char* name, const std::string& where) {
  const json& value = member(object, name, where);
  if (!value.is_string()) refuse(value, name, "a text", where);
  return value.get<std::string>();
}

double positive(const json& value, const char* name, const std::string& where) {
  const bool good = value.is_number() && value.get<double>() > 0 && std::isfinite(value.get<double>());
  if (!good) refuse(value, name, "a number above 0", where);
  return value.get<double>();
}
double positive_of(const json& object, const char* name, const std::string& where) {
  return positive(member(object, name, where), name, where);
}

int count_of(const json& object, const char* name, const std::string& where) {
  constexpr std::int64_t max_ranks = 1 << 20;
  const json& value = member(object, name, where);
  const bool good =
      value.is_number_integer() && value.get<std::int64_t>() > 0 && value.get<std::int64_t>() <= max_ranks;
  if (!good) refuse(value, name, fmt::format("a whole number from 1 to {}", max_ranks), where);
  return value.get<int>();
}

/// Value of a field that is one of several words.
template <class T, std::size_t n>
T choice_of(const json& object, const char* name, const std::pair<const char*, T> (&choices)[n],
            const std::string& where) {
  const std::string word = text_of(object, name, where);
  std::string words;
  for (const auto& [known, value] : choices) {
    if (word == known) return value;
    words += fmt::format("{}{}", words.empty() ? "" : ", ", known);
  }
  refuse(word, name, "one of " + words, where);
}

DType dtype_of(const json& object, const std::string& where) {
  constexpr std::pair<const char*, DType> types[] = {
      {"fp32", DType::fp32}, {"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp64", DType::fp64}};
  return choice_of(object, "dtype", types, where);
}

Calibration::Kernel kernel_of(const json& object, const std::string& where) {
  Calibration::Kernel kernel;
  kernel.call = {
      text_of(object, "kernel", where), {}, positive_of(object, "work", where), positive_of(object, "us", where)};
  const json& shape = member(object, "shape", where);
  if (!shape.is_array()) refuse(shape, "shape", "a list of numbers", where);
  for (const json& extent : shape) kernel.call.shape.push_back(positive(extent, "shape", where));
  kernel.dtype = dtype_of(object, where);
  kernel.ranks = count_of(object, "ranks", where);
  return kernel;
}

Calibration::Share share_of(const json& object, const std::string& where) {
  constexpr std::pair<const char*, bool> units[] = {{"GB/s", true}, {"TFLOP/s", false}};
  return {text_of(object, "kernel", where), choice_of(object, "unit", units, where),
          positive_of(object, "ceiling", where), positive_of(object, "share", where)};
}

Calibration::Transfer transfer_of(const json& object, const std::string& where) {
  using enum Collective;
  constexpr std::pair<const char*, Collective> operations[] = {{"all_reduce", all_reduce},
                                                               {"reduce_scatter", reduce_scatter},
                                                               {"all_gather", all_gather},
                                                               {"broadcast", broadcast},
                                                               {"send_receive", send_receive}};
  Calibration::Transfer transfer{.collective = choice_of(object, "operation", operations, where),
                                 .ranks = count_of(object, "ranks", where),
                                 .bytes = positive_of(object, "bytes", where),
                                 .us = positive_of(object, "time_us", where)};
  if (object.contains("nodes")) transfer.nodes = count_of(object, "nodes", where);
  TRIREME_CHECK(transfer.nodes <= transfer.ranks, DataError, "{}: \"nodes\" is {}, more than \"ranks\", {}", where,
                transfer.nodes, transfer.ranks);
  return transfer;
}

json parse(std::string_view line, const std::string& where) {
  try {
    return json::parse(line);
  } catch (const json::exception& error) {
    throw DataError(
        "{}: not JSON: {}. The lines of kernels_calibration, kernels_gpu_bench and collectives_bench are read", where,
        json_fault(error.what()));
  }
}

}  // namespace

void add_calibration(std::string_view text, const std::string& path, plan::Calibration& calibration) {
  bool empty = true;
  int number = 0;
  for (const std::string_view line : split(text, '\n')) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    empty = false;
    const std::string where = fmt::format("{}:{}", path, number);
    const json object = parse(line, where);
    TRIREME_CHECK(object.is_object() && (object.contains("kernel") || object.contains("operation")), DataError,
                  "{}: neither a \"kernel\" nor an \"operation\": the lines of kernels_calibration, kernels_gpu_bench "
                  "and collectives_bench are read",
                  where);
    if (object.contains("operation"))
      calibration.transfers.push_back(transfer_of(object, where));
    else if (object.contains("work"))
      calibration.kernels.push_back(kernel_of(object, where));
    else
      calibration.shares.push_back(share_of(object, where));
  }
  TRIREME_CHECK(!empty, DataError, "{}: there are no measurements", path);
}

plan::Calibration read_calibration(const std::vector<std::string>& paths) {
  constexpr std::int64_t max_bytes = 64 << 20;
  plan::Calibration calibration;
  for (const std::string& path : paths) {
    add_calibration(read_whole_file(path, max_bytes, Symlinks::follow), path, calibration);
  }
  return calibration;
}

}  // namespace trireme::io
