// Registers nothing.
extern "C" int nothing_here() { return 0; }
