#include "src/optim/streamed_state.hpp"

namespace trireme::optim {

StreamedState::StreamedState(Backend& backend, const std::vector<DType>& dtypes, std::int64_t piece_elements)
    : backend_(backend), slots_(slots), fetching_(backend.make_stream()), storing_(backend.make_stream()) {
  for (Slot& slot : slots_) {
    for (const DType dtype : dtypes) slot.arrays.emplace_back(backend, dtype, Shape{piece_elements});
  }
}

StreamedState::~StreamedState() {
  try {
    fetching_->synchronize();  // before memory is freed
    storing_->synchronize();
  } catch (const Error&) {
    // No one reads the results after this point.
  }
}

void StreamedState::begin(Stream& stream) { fetching_->wait(*stream.record()); }

void StreamedState::update(Stream& stream, const std::vector<TensorView>& piece,
                           const std::function<void(const std::vector<TensorView>&)>& update) {
  Slot& slot = slots_[next_++ % slots_.size()];
  std::vector<TensorView> arrays;
  if (slot.stored) fetching_->wait(*slot.stored);
  for (std::size_t i = 0; i < piece.size(); ++i) {
    arrays.push_back(slot.arrays[i].view().flat(0, piece[i].numel()));
    backend_.copy_from_host(*fetching_, piece[i], arrays[i]);
  }
  stream.wait(*fetching_->record());
  update(arrays);
  storing_->wait(*stream.record());
  for (std::size_t i = 0; i < piece.size(); ++i) backend_.copy_to_host(*storing_, arrays[i], piece[i]);
  slot.stored = storing_->record();
}

std::size_t StreamedState::bytes() const {
  std::size_t sum = 0;
  for (const Slot& slot : slots_) {
    for (const Tensor& array : slot.arrays) sum += array.view().size_bytes();
  }
  return sum;
}

void StreamedState::end(Stream& stream) { stream.wait(*storing_->record()); }

}  // namespace trireme::optim
