#pragma once

#include <string>

#include "src/app/job/saved_model.hpp"
#include "src/exchange/model_class.hpp"

namespace trireme::app {

/// The README.md of an exported model: its shape, its training, the data that it read, the files that the ranks of its
/// grid saved, and the program's commit.
std::string model_card(const OpenCheckpoint& checkpoint, const exchange::ModelClass& model_class, DType dtype);

}  // namespace trireme::app
