#pragma once

#include <string>

#include "src/plan/simulation.hpp"

namespace trireme::plan {

/// Draws a simulated schedule as text: one row per rank, time across. A step is its letter (F forward, B backward, I
/// backward of the input, W of the weights), its chunk where there are several, and its micro-batch. Dashes fill its
/// time; dots are idle. Times must be whole numbers.
std::string text_of(const Simulation& simulation, const parallel::Schedule& schedule);

/// The same as an SVG picture: a bar for each step, its name in the middle and in its tooltip with start and end.
std::string svg_of(const Simulation& simulation, const parallel::Schedule& schedule);

}  // namespace trireme::plan
