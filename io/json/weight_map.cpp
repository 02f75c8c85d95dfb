#include "io/json/weight_map.hpp"

#include <nlohmann/json.hpp>

#include "io/json/json_text.hpp"
#include "src/base/check.hpp"
#include "src/base/text.hpp"

namespace trireme::io {
namespace {

using nlohmann::json;

/// Accepts {"weight_map": {"TENSOR": "FILE", ...}, ...} and skips all other members.
class WeightMapHandler : public nlohmann::json_sax<json> {
 public:
  explicit WeightMapHandler(const std::string& path) : path_(path) {}
  std::map<std::string, std::string> finish() {
    TRIREME_CHECK(found_, DataError, "{} has no 'weight_map' of tensors and files", path_);
    return std::move(files_);
  }

  bool start_object(std::size_t) override {
    ++depth_;
    if (depth_ == 2 && wanted_) {
      TRIREME_CHECK(!found_, DataError, "{} has two members 'weight_map'", path_);
      found_ = inside_ = true;
    }
    return check(depth_ <= 2 || !inside_);
  }
  bool end_object() override {
    --depth_;
    inside_ = inside_ && depth_ >= 2;
    return true;
  }
  bool key(std::string& name) override {
    if (depth_ == 1) wanted_ = name == "weight_map";
    if (inside_) tensor_ = name;
    return true;
  }
  bool string(std::string& file) override {
    if (!inside_) return check(!wanted_ || depth_ != 1);
    const bool plain = !file.empty() && file.size() <= 255 && file.find('/') == file.npos && file != "." &&
                       file != ".." && file.find('\0') == file.npos;
    TRIREME_CHECK(plain, DataError, "{} names a file '{}', which is not the name of a file beside it: refused", path_,
                  shortened(file));
    TRIREME_CHECK(files_.emplace(tensor_, file).second, DataError, "{} names the tensor '{}' twice", path_,
                  shortened(tensor_));
    return true;
  }
  bool start_array(std::size_t) override {
    ++depth_;
    return check(!inside_);
  }
  bool end_array() override { return --depth_, true; }
  bool null() override { return check(!inside_); }
  bool boolean(bool) override { return check(!inside_); }
  bool number_integer(std::int64_t) override { return check(!inside_); }
  bool number_unsigned(std::uint64_t) override { return check(!inside_); }
  bool number_float(double, const std::string&) override { return check(!inside_); }
  bool binary(json::binary_t&) override { return check(!inside_); }
  bool parse_error(std::size_t byte, const std::string&, const json::exception& error) override {
    throw DataError("{}:{}: not JSON: {}", path_, byte, json_fault(error.what()));
  }

 private:
  bool check(bool good) const {
    TRIREME_CHECK(good, DataError, "{}: 'weight_map' has something else than names of files", path_);
    return true;
  }
  const std::string& path_;
  int depth_ = 0;
  bool wanted_ = false, found_ = false, inside_ = false;
  std::string tensor_;
  std::map<std::string, std::string> files_;  // by tensor
};

}  // namespace

std::map<std::string, std::string> parse_weight_map(const std::string& text, const std::string& path) {
  WeightMapHandler handler(path);
  json::sax_parse(text, &handler);
  return handler.finish();
}

}  // namespace trireme::io
