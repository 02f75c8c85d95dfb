#include "src/train/host_state.hpp"

namespace trireme::train {
namespace {

std::vector<TensorView> data_of(const std::vector<checkpoint::StateTensor>& tensors) {
  std::vector<TensorView> data;
  for (const checkpoint::StateTensor& tensor : tensors) data.push_back(tensor.data);
  return data;
}

}  // namespace

HostState::HostState(Backend& backend, std::vector<checkpoint::StateTensor> tensors, HostCopies::Allocation allocation)
    : backend_(backend),
      tensors_(std::move(tensors)),
      copies_(backend, data_of(tensors_), allocation),
      copying_(backend.make_stream()) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].data = copies_.host(i);
}

void HostState::fetch() {
  copies_.download(backend_.compute_stream());
  copies_.wait();
}

void HostState::begin_fetch() {
  copying_->wait(*backend_.compute_stream().record());
  copies_.download(*copying_);
}

void HostState::store() {
  copies_.upload(backend_.compute_stream());
  copies_.wait();
}

}  // namespace trireme::train
