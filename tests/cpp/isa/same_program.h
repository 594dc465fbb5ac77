#pragma once

#include "isa/program.h"
#include "isa/table.h"
#include "tests/cpp/catch.h"

inline void check_same_program(const trnsim::isa::Program& a, const trnsim::isa::Program& b) {
  CHECK(a.name == b.name);
  CHECK(a.target == b.target);
  CHECK(a.flops == b.flops);
  CHECK(a.hbm_bytes == b.hbm_bytes);
  CHECK(a.notes == b.notes);
  REQUIRE(a.tensors.size() == b.tensors.size());
  for (size_t i = 0; i < a.tensors.size(); ++i) {
    CHECK(a.tensors[i].name == b.tensors[i].name);
    CHECK(a.tensors[i].kind == b.tensors[i].kind);
    CHECK(a.tensors[i].dtype == b.tensors[i].dtype);
    CHECK(a.tensors[i].shape == b.tensors[i].shape);
    CHECK(a.tensors[i].bytes == b.tensors[i].bytes);
    CHECK(a.tensors[i].constant == b.tensors[i].constant);
  }
  REQUIRE(a.locations.size() == b.locations.size());
  for (size_t i = 0; i < a.locations.size(); ++i) {
    CHECK(a.locations[i].file == b.locations[i].file);
    CHECK(a.locations[i].line == b.locations[i].line);
    CHECK(a.locations[i].what == b.locations[i].what);
  }
  CHECK(a.cores == b.cores);
  for (size_t e = 0; e < a.streams.size(); ++e) {
    REQUIRE(a.streams[e].size() == b.streams[e].size());
    for (size_t n = 0; n < a.streams[e].size(); ++n) {
      INFO("stream " << e << " instruction " << n << " " << trnsim::isa::row(a.streams[e][n].opcode).name);
      REQUIRE(trnsim::isa::same_instruction(a.streams[e][n], b.streams[e][n]));
    }
  }
}
