#pragma once

#include <string_view>
#include <vector>

namespace trireme::parallel {

/// Reads the layers of every chunk, in the order in which data passes the chunks, from one of two forms: numbers,
/// "0,3,3,2", or Megatron-LM's pieces, "E|t*3|t*3|t*2,L". There a bar ends a chunk, and E is the embedding, t a layer
/// and L the loss. x*N repeats the piece x N times, (...)*N a group; groups do not nest, and commas are ignored. Throws
/// ConfigError for a text of neither form, for unsupported pieces, and for an embedding or a loss that is not at its
/// end.
std::vector<int> layers_of_chunks(std::string_view text);

}  // namespace trireme::parallel
