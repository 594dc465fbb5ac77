// libnrt.so.1 consists of the runtime archive and the chip; a shared library needs one source of its own.
#include "sim/runtime/nrt.h"
#include "sim/runtime/trnsim_ext.h"
