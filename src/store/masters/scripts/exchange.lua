-- ARGV: as above, then the number of fields to read, these, and cells.
local fields = tonumber(ARGV[4])
apply(5 + fields)
return show(5, 4 + fields)
