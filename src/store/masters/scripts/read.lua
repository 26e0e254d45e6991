-- ARGV: view and epoch, fields.
return show(2, #ARGV)
