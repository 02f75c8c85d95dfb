#include "src/exchange/fused_experts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace trireme::exchange {
namespace {

constexpr std::string_view gate_up = ".experts.gate_up_proj", down = ".experts.down_proj";

/// Returns whether a tensor has the matrices of several experts.
bool is_fused(const ForeignTensor& tensor) {
  const bool halves = tensor.name.ends_with(gate_up);
  return (halves || tensor.name.ends_with(down)) && tensor.shape.rank() == 3 && (!halves || tensor.shape[1] % 2 == 0);
}

class SingleExperts final : public TensorSource {
 public:
  explicit SingleExperts(std::unique_ptr<TensorSource> source) : source_(std::move(source)) {
    for (std::size_t i = 0; i < source_->tensors().size(); ++i) {
      const ForeignTensor& tensor = source_->tensors()[i];
      if (is_fused(tensor)) {
        add_experts(i);
      } else {
        tensors_.push_back(tensor);
        places_.push_back({i, 0});
      }
    }
  }

  std::string description() const override { return source_->description(); }
  const std::vector<ForeignTensor>& tensors() const override { return tensors_; }
  void read(std::size_t tensor, std::int64_t first, std::span<std::byte> out) override {
    source_->read(places_[tensor].tensor, places_[tensor].first + first, out);
  }
  void prefetch(std::size_t tensor, std::int64_t first, std::int64_t count) override {
    source_->prefetch(places_[tensor].tensor, places_[tensor].first + first, count);
  }

 private:
  /// A tensor's place in the source.
  struct Place {
    std::size_t tensor = 0;
    std::int64_t first = 0;  // element
  };

  void add_experts(std::size_t index) {
    const ForeignTensor& fused = source_->tensors()[index];
    const bool halves = fused.name.ends_with(gate_up);
    const std::string layer = fused.name.substr(0, fused.name.rfind('.'));
    const std::int64_t rows = halves ? fused.shape[1] / 2 : fused.shape[1], columns = fused.shape[2];
    std::int64_t first = 0;
    for (std::int64_t expert = 0; expert < fused.shape[0]; ++expert) {
      for (int part = 0; part < (halves ? 2 : 1); ++part) {
        const char* name = !halves ? "down" : part == 0 ? "gate" : "up";
        tensors_.push_back({fmt::format("{}.{}.{}_proj.weight", layer, expert, name), fused.dtype, {rows, columns}});
        places_.push_back({index, first});
        first += rows * columns;
      }
    }
  }

  std::unique_ptr<TensorSource> source_;
  std::vector<ForeignTensor> tensors_;
  std::vector<Place> places_;
};

}  // namespace

std::unique_ptr<TensorSource> with_single_experts(std::unique_ptr<TensorSource> source) {
  if (std::ranges::none_of(source->tensors(), is_fused)) return source;
  return std::make_unique<SingleExperts>(std::move(source));
}

}  // namespace trireme::exchange
