# SPDX-License-Identifier: Apache-2.0
# Writes the texts of FILES (separated by commas, seen from the folder FROM) into the C file OUT, as the table sherd__device_texts: what NVRTC
# compiles comes with the library.
string(REPLACE "," ";" files "${FILES}")
set(arrays)
set(rows)
set(number 0)
foreach(file IN LISTS files)
    file(READ "${FROM}/${file}" bytes HEX)
    string(REGEX REPLACE "(................................)" "\\1\n    " bytes "${bytes}")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1, " bytes "${bytes}")
    get_filename_component(name ${file} NAME)
    string(APPEND arrays "\nstatic const unsigned char text_${number}[] = {\n    ${bytes}0};\n")
    string(APPEND rows "    {\"${name}\", text_${number}},\n")
    math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUT}" "/* Made by tools/embed.cmake. */\n#include \"device/texts.h\"\n${arrays}
const sherd__device_text sherd__device_texts[] = {\n${rows}    {0, 0},\n};\n")
