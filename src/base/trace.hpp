#pragma once

namespace trireme {

/// Timed activity of a rank. Names are literals: recording only allocates the list.
struct TraceSpan {
  const char* name = "";
  const char* category = "";
  int chunk = -1;  ///< chunk of a pipeline step; -1: none
  int micro_batch = -1;
  double start_us = 0;  ///< since the recorder's beginning
  double end_us = 0;
};

}  // namespace trireme
